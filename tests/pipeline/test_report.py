"""Reports: what a person looks at is what the tables say."""

import json
import re
from pathlib import Path

import msgspec
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from pulsarcast.pipeline import schema
from pulsarcast.pipeline.beside import Bar, Bars, Beside, Table, read_beside
from pulsarcast.pipeline.quality import computed
from pulsarcast.pipeline.report import CHARTS, Frames, boil_down, draw, write_report
from pulsarcast.pipeline.report.frames import OTHERS, TOPICS_MAX, _busiest
from pulsarcast.simulation.options import load
from pulsarcast.simulation.scenario import run_scenario

PNG = b"\x89PNG\r\n"


def made_up(name: str = "news") -> Frames:
    """Two runs, one of which lost something."""
    runs = ["good", "bad"]
    totals = pd.DataFrame(
        {
            "run_id": runs,
            "published": [10, 10],
            "due": [100, 100],
            "delivered": [100, 97],
            "duplicates": [0, 1],
            "lost": [0, 3],
            "undecided": [0, 2],
            "rpc_sent": [120.0, None],
            "rpc_bytes_sent": [36_000.0, None],
            "nodes": [10, 10],
            "hops_max": [4, 5],
            "faults": [0, 7],
        }
    )
    topics = pd.DataFrame(
        {
            "run_id": runs,
            "rank": [1, 1],
            "name": [name, name],
            "published": [10, 10],
            "due": [100, 100],
            "delivered": [100, 97],
            "rpc_sent": [120, 0],
        }
    )
    nodes = pd.DataFrame(
        {"run_id": runs, "measure": ["delivered"] * 2, "step": [1, 1], "value": [10, 9]}
    )
    time = pd.DataFrame({"run_id": runs, "time_s": [0.0, 0.0], "delivered_per_s": [5.0, 4.0]})
    hops = pd.DataFrame({"run_id": runs, "hops": [4, 5], "deliveries": [100, 97]})
    return Frames(totals, topics, nodes, time, hops)


def test_a_report_is_one_page_and_a_picture_of_each_chart(tmp_path: Path) -> None:
    files = write_report(made_up(), tmp_path / "out")
    assert [path.name for path in files] == ["report.html", *(f"{name}.png" for name in CHARTS)]
    assert all(path.read_bytes().startswith(PNG) for path in files[1:])


def test_the_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = write_report(made_up(), tmp_path)[0].read_text()
    assert "<script src" not in page
    without_programs = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert "<figure" in without_programs
    assert not re.findall(r"(?:src|href|url)\s*[=(]", without_programs)


def test_the_page_says_what_was_lost(tmp_path: Path) -> None:
    page = write_report(made_up(), tmp_path)[0].read_text()
    assert "100 of 100 (100.0000%)" in page
    assert '<td class="bad">97 of 100 (97.0000%)</td>' in page
    assert '<td class="bad">3</td>' in page
    assert "nan" not in re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


def test_what_stands_beside_takes_the_place_of_the_thesis(tmp_path: Path) -> None:
    table = Table(
        title="Cost & <time>",
        head=["run", "sent"],
        rows=[["thesis", "9"], ["good", "1"]],
        own=[False, True],
        about="in MiB",
    )
    bar = Bar(group="good", whose="here", value=1.0, text="one")
    bars = Bars(name="beside", title="t", about="a", axis="x", bars=[bar])
    given = tmp_path / "beside.json"
    given.write_bytes(msgspec.json.encode(Beside(tables=[table], bars=[bars])))
    files = write_report(made_up(), tmp_path, beside=read_beside(given))
    page = files[0].read_text()
    assert "<h2>Cost &amp; &lt;time&gt;</h2>" in page
    assert '<tr class="own"><td>good</td><td>1</td></tr>' in page
    assert "thesis, table 5.8" not in page
    assert files[1].name == "beside.png"
    assert '<figure id="beside">' in page


def test_a_topic_can_be_called_anything(tmp_path: Path) -> None:
    page = write_report(made_up("</script><script>alert(1)</script>"), tmp_path)[0].read_text()
    assert "<script>alert" not in page


def test_nearly_all_does_not_look_like_all() -> None:
    words = {row["run_id"]: row for row in _data(draw(made_up())["fulfilment"].to_dict())}
    assert words["good"]["fulfilled"] == "all"
    assert words["bad"]["fulfilled"] == "less than 99 %"


def _data(spec: dict[str, object]) -> list[dict[str, object]]:
    datasets = spec["datasets"]
    assert isinstance(datasets, dict)
    (rows,) = datasets.values()
    assert isinstance(rows, list)
    return rows


def test_without_messages_nothing_is_drawn_about_them() -> None:
    frames = made_up()
    silent = frames._replace(topics=frames.topics.assign(rpc_sent=0))
    assert "events-against-rpc" not in draw(silent)


def test_the_column_of_messages_is_there_where_somebody_traced_them(tmp_path: Path) -> None:
    frames = made_up()
    assert "messages per delivery" in write_report(frames, tmp_path)[0].read_text()
    silent = frames._replace(totals=frames.totals.assign(rpc_sent=None))
    assert "messages per delivery" not in write_report(silent, tmp_path)[0].read_text()


def test_topics_beyond_the_busiest_are_added_up(spark: SparkSession) -> None:
    rows = [("r", f"cid-{at}", f"topic-{at}", at, 2 * at, at, 0) for at in range(TOPICS_MAX + 5)]
    columns = "run_id string, topic string, name string, published bigint, due bigint"
    table = spark.createDataFrame(rows, f"{columns}, delivered bigint, rpc_sent bigint")
    shown = {row["name"]: row["published"] for row in _busiest(table).collect()}
    assert len(shown) == TOPICS_MAX + 1
    assert shown[OTHERS] == sum(range(5))
    assert sum(shown.values()) == sum(range(TOPICS_MAX + 5))


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run with every message in its traces."""
    folder = tmp_path_factory.mktemp("traces")
    options = msgspec.structs.replace(
        load("thesis"), nodes=8, events=20, trace=str(folder), trace_level="rpc", run_id="007"
    )
    assert run_scenario(options).ok
    return folder


@pytest.mark.slow
def test_the_frames_of_a_run_are_its_own_counts(spark: SparkSession, traces: Path) -> None:
    result = json.loads((traces / "result.json").read_text())
    lines = spark.read.schema(schema.LINES).json(str(traces / "*.ndjson.zst"))
    with computed(lines) as measured:
        frames = boil_down(lines, measured)
    (total,) = frames.totals.to_dict("records")
    assert total["run_id"] == "007"
    assert (total["due"], total["delivered"]) == (result["due"], result["delivered"])
    assert (total["published"], total["nodes"]) == (result["events"], result["nodes"])
    assert total["rpc_sent"] == result["all_messages"]
    assert total["hops_max"] == result["hops_max"]
    assert int(frames.topics["delivered"].sum()) == result["delivered"]
    deliveries = frames.nodes[frames.nodes["measure"] == "delivered"]
    assert int(deliveries["value"].sum()) == result["delivered"]
