"""Synthetic traces keep every promise: the simulator's own observer reads them and objects not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import zstandard

from pulsarcast.model import trace
from pulsarcast.model.errors import LocalError
from pulsarcast.model.topic_types import DeliveryOrder
from pulsarcast.pipeline.synthetic_traces import Plan, make_plan, write_traces
from pulsarcast.pipeline.synthetic_traces.writing import DRIVER, EXPECTED
from pulsarcast.protocol.inputs import Now
from pulsarcast.simulation.checkers.coverage import check_coverage
from pulsarcast.simulation.observer import Observer

LINES = 60_000


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(LINES, seed=7)


@pytest.fixture(scope="module")
def folder(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic")
    write_traces(plan, folder, workers=1)
    return folder


def _texts(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.glob("*.ndjson.zst")):
        yield from zstandard.decompress(path.read_bytes(), max_output_size=1 << 28).splitlines(
            keepends=True
        )


@pytest.fixture(scope="module")
def lines(folder: Path) -> list[trace.Line]:
    return [trace.decode_line(text) for text in _texts(folder)]


def test_every_line_is_what_a_node_would_have_written(
    folder: Path, lines: list[trace.Line]
) -> None:
    assert len(lines) == LINES
    for text, line in zip(_texts(folder), lines, strict=True):
        assert trace.encode_line(*line) == text


def test_the_lines_are_numbered_without_gaps_and_clocks_never_go_back(
    lines: list[trace.Line],
) -> None:
    last: dict[tuple[str, int], trace.Envelope] = {}
    for envelope, _ in lines:
        key = envelope.node_id, envelope.incarnation
        before = last.get(key)
        assert envelope.seq == (1 if before is None else before.seq + 1)
        if before is not None:
            assert envelope.mono_ns >= before.mono_ns
            assert envelope.wall_ns >= before.wall_ns
        last[key] = envelope


def test_the_figures_are_those_that_the_plan_foretold(
    plan: Plan, folder: Path, lines: list[trace.Line]
) -> None:
    expected = json.loads((folder / EXPECTED).read_text())
    kinds = Counter(trace.kind_of(line.record) for line in lines)
    assert expected["kinds"] == kinds
    assert plan.counts().items() <= kinds.items()
    assert expected["lines"] == LINES
    assert kinds["delivered"] > 0.9 * LINES
    for kind in ("gap_found", "gap_filled", "rpc_sent", "rpc_received", "resources"):
        assert kinds[kind] > 0, kind
    assert kinds["unsubscribed"] > 0
    hot = plan.topics[0].cid
    share = sum(getattr(line.record, "topic", None) == hot for line in lines) / LINES
    assert 0.57 < share < 0.61
    assert {topic.order for topic in plan.topics} == set(DeliveryOrder)
    starts = [line.record.start for line in lines if isinstance(line.record, trace.Subscribed)]
    assert any(starts)
    assert any(line.record.redelivery for line in lines if isinstance(line.record, trace.Delivered))


def test_the_simulators_observer_has_no_objection_and_counts_the_same(
    plan: Plan, lines: list[trace.Line]
) -> None:
    observer = Observer()
    index_of = {name: index for index, name in enumerate(plan.names)}
    observer.peers.update(enumerate(plan.peers))
    for _, record in lines:
        if isinstance(record, trace.TopicCreated):
            allowed = None if record.allowed is None else frozenset(record.allowed)
            observer.allow(record.version, allowed)

    def tell(line: trace.Line) -> None:
        envelope, record = line
        now = Now(envelope.mono_ns / 1e9, envelope.wall_ns // 1000)
        observer.record(0.0, index_of[envelope.node_id], envelope.incarnation, now, record)

    # The observer expects what is published before what is delivered; nodes are apart otherwise.
    publications = [line for line in lines if isinstance(line.record, trace.Published)]
    publications.sort(key=lambda line: line.record.request_id)  # type: ignore[attr-defined]
    for line in lines:
        if isinstance(line.record, trace.TopicCreated):
            tell(line)
    for line in publications:
        tell(line)
    lost = {
        (record.target, record.target_incarnation)
        for _, record in lines
        if isinstance(record, trace.Fault) and record.action in ("restart_empty", "lose")
    }
    life: tuple[str, int] | None = None
    for line in lines:
        envelope, record = line
        if envelope.node_id == DRIVER:
            if isinstance(record, trace.Acknowledged):
                observer.acknowledged(record.event, record.level)
            continue
        if life in lost and life != (envelope.node_id, envelope.incarnation):
            assert life is not None
            observer.disk_lost(index_of[life[0]], -1.0)
        life = envelope.node_id, envelope.incarnation
        if not isinstance(record, (trace.Published, trace.TopicCreated)):
            tell(line)
    assert life not in lost
    assert lost
    coverage = check_coverage(observer, now_s=0.0)
    assert dict(observer.findings.counts) == {}
    expected = plan.expected()
    assert coverage.tally.due == coverage.tally.delivered == expected["due"]
    assert coverage.tally.undecided == 0
    assert observer.redeliveries == expected["redelivered"]


def test_an_event_of_causal_order_has_as_parents_what_its_publisher_saw_last(
    plan: Plan, lines: list[trace.Line]
) -> None:
    causal = {topic.cid for topic in plan.topics if topic.order is DeliveryOrder.CAUSAL}
    parents_of = {
        line.record.event: line.record.parents
        for line in lines
        if isinstance(line.record, trace.Published)
    }
    checked = 0
    heads: dict[tuple[str, bytes], dict[bytes, None]] = {}
    for envelope, record in lines:
        if not isinstance(record, (trace.Published, trace.Delivered)) or record.topic not in causal:
            continue
        seen = heads.setdefault((envelope.node_id, record.topic), {})
        if isinstance(record, trace.Published):
            if record.event not in seen:
                assert set(record.parents) == set(seen)
                checked += 1
        else:
            for parent in parents_of[record.event]:
                seen.pop(parent, None)
            seen[record.event] = None
    assert checked > 50


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_workers(tmp_path: Path) -> None:
    small = make_plan(12_000, seed=3, nodes=48)
    for workers in (1, 3):
        write_traces(small, tmp_path / str(workers), workers=workers)
    one, three = (
        {path.name: path.read_bytes() for path in (tmp_path / str(workers)).iterdir()}
        for workers in (1, 3)
    )
    assert one == three
    other = make_plan(12_000, seed=4, nodes=48)
    assert other.peers != small.peers


def test_a_trace_over_several_eras_and_segments_is_clean_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds of eras and segments are where lines could be lost, or come twice."""
    for room in ("events", "plan", "planning", "writing"):
        monkeypatch.setattr(f"pulsarcast.pipeline.synthetic_traces.{room}.ERA", 100, raising=False)
    monkeypatch.setattr("pulsarcast.pipeline.synthetic_traces.segments.SEGMENT_BYTES", 100_000)
    from pulsarcast.pipeline.synthetic_traces import writing

    plan = make_plan(30_000, seed=5, nodes=64)
    assert plan.slots > 300
    counts = writing._write_share(plan, tmp_path, range(64), writing._share_filling(plan), True)
    assert sum(counts.values()) == 30_000
    source = f"read_json('{tmp_path}/*.ndjson.zst', format='newline_delimited', columns={{"
    columns = {"node_id": "VARCHAR", "incarnation": "BIGINT", "seq": "BIGINT", "kind": "VARCHAR",
               "topic": "VARCHAR", "event": "VARCHAR", "redelivery": "BOOLEAN"}  # fmt: skip
    source += ", ".join(f"{name}: '{kind}'" for name, kind in columns.items()) + "})"
    gaps = duckdb.execute(
        f"SELECT count(*) FROM (SELECT count(*) n, max(seq) last FROM {source}"
        " GROUP BY node_id, incarnation) WHERE n <> last"
    ).fetchone()
    twice = duckdb.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM {source} WHERE kind = 'delivered' AND NOT redelivery"
        " GROUP BY node_id, topic, event HAVING count(*) > 1)"
    ).fetchone()
    assert gaps == twice == (0,)


def test_a_large_trace_is_95_percent_deliveries_and_60_percent_one_topic() -> None:
    for lines in (1_000_000, 50_000_000):
        plan = make_plan(lines)
        assert 0.94 < plan.counts()["delivered"] / lines < 0.96
        hot = sum(
            plan.published(0, plan.slots if period.end is None else period.end)
            - plan.published(0, period.first)
            for node in plan.nodes
            for period in node.periods
            if period.topic == 0
        )
        # Published, injected, and acknowledged twice.
        hot += 4 * plan.published(0, plan.slots)
        assert 0.59 < hot / lines < 0.61


def test_too_few_lines_are_refused() -> None:
    with pytest.raises(LocalError, match="at least"):
        make_plan(100)
    with pytest.raises(LocalError, match="too few"):
        make_plan(5_000)
