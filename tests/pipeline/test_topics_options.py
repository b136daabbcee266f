"""Options of the source: what is understood, and what the user is told otherwise."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.topics.options import EARLIEST, LATEST, Entry, Secret, read_options
from pulsarcast.pipeline.topics.source import TopicSource


def test_topics_alone_are_enough() -> None:
    options = read_options({"topics": "weather"})
    assert options.topics == (Entry("weather", is_tree=False),)
    assert options.starting is None
    assert options.ending is None
    assert options.fail_on_data_loss
    assert options.records_per_partition_max == 50_000
    assert not options.headers
    assert not options.blocks


def test_case_does_not_matter() -> None:
    given = CaseInsensitiveDict({"TOPICS": "a", "StartingOffsets": "EARLIEST", "MINpartitions": 3})
    options = read_options({key: str(value) for key, value in given.items()})
    assert options.starting == EARLIEST
    assert options.partitions_min == 3


def test_a_list_of_topics_may_name_trees() -> None:
    options = read_options({"topics": " weather, 12D3x/news/* ,weather,bafy1/*"})
    assert options.topics == (
        Entry("weather", is_tree=False),
        Entry("12D3x/news", is_tree=True),
        Entry("bafy1", is_tree=True),
    )
    assert [str(entry) for entry in options.topics] == ["weather", "12D3x/news/*", "bafy1/*"]


def test_offsets_are_words_or_json() -> None:
    assert read_options({"topics": "a", "startingOffsets": "latest"}).starting == LATEST
    given = '{"a": 12, "b": -1, "c": -2}'
    options = read_options({"topics": "a", "startingOffsets": given, "endingOffsets": '{"a": 20}'})
    assert options.starting == {"a": 12, "b": LATEST, "c": EARLIEST}
    assert options.ending == {"a": 20}
    assert read_options({"topics": "a", "endingOffsets": "latest"}).ending is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "say which topics"),
        ({"topics": " , "}, "say which topics"),
        ({"topics": "a", "startingOffset": "x"}, "did you mean startingOffsets"),
        ({"topics": "a", "subscribe": "x"}, "there is no option subscribe"),
        ({"topics": "a", "path": "x"}, "has no path"),
        ({"topics": "/*"}, "names no topic"),
        ({"topics": "weath*"}, "names no topic"),
        ({"topics": "a", "startingOffsets": "soon"}, "earliest, latest, or JSON"),
        ({"topics": "a", "startingOffsets": "[1]"}, "an index for each topic"),
        ({"topics": "a", "startingOffsets": "{}"}, "an index for each topic"),
        ({"topics": "a", "startingOffsets": '{"a": {"0": 23}}'}, "counted from 1"),
        ({"topics": "a", "startingOffsets": '{"a": true}'}, "counted from 1"),
        ({"topics": "a", "startingOffsets": '{"a": 0}'}, "counted from 1"),
        ({"topics": "a", "startingOffsets": '{"a": -3}'}, "counted from 1"),
        ({"topics": "a", "endingOffsets": '{"a": -2}'}, "nothing ends at the earliest"),
        ({"topics": "a", "endingOffsets": "earliest"}, "endingOffsets is latest, or JSON"),
        ({"topics": "a", "minPartitions": "0"}, "from 1 on"),
        ({"topics": "a", "maxOffsetsPerTrigger": "many"}, "from 1 on"),
        ({"topics": "a", "failOnDataLoss": "maybe"}, "true or false"),
        ({"topics": "a", "token": "t", "tokenFile": "f"}, "not both"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(options: dict[str, str], expected: str) -> None:
    with pytest.raises(LocalError, match=expected):
        read_options(options)


def test_a_token_may_lie_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("hush-hush\n")
    connection = read_options({"topics": "a", "tokenFile": str(file)}).connection
    assert connection.token == "hush-hush"
    with pytest.raises(LocalError, match="read on the driver's machine"):
        read_options({"topics": "a", "tokenFile": str(tmp_path / "missing")})


def test_a_token_does_not_show_where_things_are_printed() -> None:
    options = read_options({"topics": "a", "token": "hush-hush", "url": "http://127.0.0.1:1"})
    assert "hush" not in repr(options)
    assert "hush" not in str(options)
    given = CaseInsensitiveDict({"topics": "a", "token": "hush-hush"})
    source = TopicSource(given)
    assert "hush" not in repr(given)
    assert "hush" not in repr(vars(source))
    assert source.options["token"] == "hush-hush"
    again = pickle.loads(pickle.dumps(Secret("hush-hush")))
    assert again == "hush-hush"
    assert "hush" not in repr(again)


def test_spark_finds_the_source_without_loading_what_may_be_missing() -> None:
    """An import that fails here would break every other Python source on the machine."""
    program = (
        "import sys, pyspark_pulsarcast as found; assert found.DefaultSource.name() == 'pulsarcast'"
        "; print([name for name in ('httpx', 'libipld', 'nacl', 'trio') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
