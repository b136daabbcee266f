"""Workloads from real dumps: equal to plain Python's, to DuckDB's, on any number of partitions."""

from __future__ import annotations

import bz2
import gzip
import io
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
import zstandard
from pyspark.sql import SparkSession

from pulsarcast.model.errors import LocalError
from pulsarcast.model.workload import Workload, parse_workload
from pulsarcast.pipeline.workloads import Counts, Options, make_from_dumps, read, read_about
from pulsarcast.pipeline.workloads.ordering import number_rows
from tests.pipeline import workload_oracle
from tests.pipeline.workload_oracle import Oracle

FOUR_MONTHS = ("RC_2005-12.zst", "RC_2006-01.bz2", "RC_2006-02.bz2", "RC_2006-03.bz2")
SAMPLE_2011 = ("RC_2011-sample.ndjson.gz",)

Find = Callable[[str], Path]


@contextmanager
def partitions(spark: SparkSession, count: int) -> Iterator[None]:
    """Exactly so many partitions in every shuffle."""
    settings = {
        "spark.sql.shuffle.partitions": str(count),
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
    }
    shuffles = spark.conf.get("spark.sql.shuffle.partitions") or "4"
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            spark.conf.unset(key)
        spark.conf.set("spark.sql.shuffle.partitions", shuffles)


def dumps(shared_data: Find, names: tuple[str, ...]) -> list[Path]:
    return [shared_data(f"reddit/{name}") for name in names]


def plain_listing(folder: Path) -> bytes:
    raw = (folder / "workload.ndjson.zst").read_bytes()
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw)).read()


def rows(spark: SparkSession, folder: Path, name: str) -> list[tuple[Any, ...]]:
    """A table, sorted: partitions have no order."""
    return sorted(tuple(row) for row in read(spark, folder, name).collect())


def part_files(folder: Path, name: str) -> int:
    return len(list((folder / name).glob("part-*.parquet")))


def assert_equal(spark: SparkSession, folder: Path, counts: Counts, oracle: Oracle) -> None:
    """Every table, the listing and the counts are what the oracle says."""
    events = rows(spark, folder, "events")
    bodies = read_about(folder).options.bodies
    assert events == [
        (
            *(internal_id, node, created, id_, int(id_, 36), author, topic, *votes),
            len(body.encode()),
            body if bodies else None,
        )
        for internal_id, node, created, id_, author, topic, *votes, body in oracle.events
    ]
    counted: dict[str, int] = {}
    first_seen: dict[str, int] = {}
    for event in oracle.events:
        for name in (("author", event[4]), ("topic", event[5]), ("pair", event[1], event[5])):
            counted[str(name)] = counted.get(str(name), 0) + 1
            first_seen.setdefault(str(name), event[0])

    def first_and_count(*name: object) -> tuple[int, int]:
        return first_seen[str(name)], counted[str(name)]

    assert rows(spark, folder, "users") == [
        (node, name, *first_and_count("author", name))
        for node, name in enumerate(oracle.users, start=1)
    ]
    pairs = list(oracle.subscriptions)
    assert rows(spark, folder, "subscriptions") == sorted(
        (node, topic, *first_and_count("pair", node, topic)) for node, topic in pairs
    )
    assert rows(spark, folder, "topics") == sorted(
        (
            topic,
            node,
            *first_and_count("topic", topic),
            sum(1 for _, other in pairs if other == topic),
        )
        for topic, node in oracle.topics.items()
    )
    assert (counts.lines - counts.broken, counts.taken, counts.deleted, counts.repeated) == (
        oracle.lines,
        oracle.taken,
        oracle.deleted,
        oracle.repeated,
    )
    assert counts.events == len(oracle.events)
    assert counts.authors == len({event[4] for event in oracle.events})
    assert counts.nodes == len(oracle.users)
    assert counts.topics == len(oracle.topics)
    assert counts.subscriptions == len(oracle.subscriptions)
    assert counts.deliveries_due == oracle.deliveries_due
    assert read_about(folder).counts == counts
    assert_listing(parse_workload(plain_listing(folder).splitlines()), oracle, bodies=bodies)


def assert_listing(workload: Workload, oracle: Oracle, *, bodies: bool) -> None:
    assert [(topic.name, topic.node) for topic in workload.topics] == [
        (topic, f"node-{node}") for topic, node in oracle.topics.items()
    ]
    assert [(user.name, user.node) for user in workload.users] == [
        (name, f"node-{node}") for node, name in enumerate(oracle.users, start=1)
    ]
    for node, user in enumerate(workload.users, start=1):
        assert user.subscriptions == [topic for own, topic in oracle.subscriptions if own == node]
    events = [(event, user) for user in workload.users for event in user.events]
    for user in workload.users:
        ids = [event.internal_id for event in user.events]
        assert ids == sorted(ids)
    events.sort(key=lambda pair: pair[0].internal_id)
    assert [
        (event.internal_id, user.node, event.topic, event.ups, event.body) for event, user in events
    ] == [
        (event[0], f"node-{event[1]}", event[5], event[6], event[9] if bodies else "")
        for event in oracle.events
    ]
    subscribers: dict[str, int] = {}
    for user in workload.users:
        for topic in user.subscriptions:
            subscribers[topic] = subscribers.get(topic, 0) + 1
    assert sum(subscribers[event.topic] for event, _ in events) == oracle.deliveries_due
    assert {topic.name: topic.event_count for topic in workload.topics} == {
        name: sum(1 for event, _ in events if event.topic == name) for name in oracle.topics
    }


def read_all(files: list[Path]) -> list[dict[str, Any]]:
    return [comment for file in files for comment in workload_oracle.read_dump(file)]


def oracle_of(comments: list[dict[str, Any]], options: Options) -> Oracle:
    return workload_oracle.make(
        comments,
        nodes=options.nodes,
        seed=options.seed,
        first=options.first,
        sample=options.sample,
        redraw=options.redraw,
    )


def assert_independent_of_partitions(
    spark: SparkSession, files: list[Path], options: Options, folder: Path
) -> dict[int, Counts]:
    """One partition and 64 make the same, in whatever order the files are named."""
    made = {}
    for count, named in ((1, files), (64, files[::-1])):
        with partitions(spark, count):
            made[count] = make_from_dumps(spark, named, options, folder / str(count))
    one, many = folder / "1", folder / "64"
    # That there were 64 is not assumed.
    assert (part_files(one, "subscriptions"), part_files(many, "subscriptions") > 32) == (1, True)
    assert made[1] == made[64]
    for name in ("events", "users", "authors", "topics", "subscriptions"):
        assert rows(spark, one, name) == rows(spark, many, name), name
    assert plain_listing(one) == plain_listing(many)
    return made


@pytest.mark.slow
def test_four_months_make_plain_pythons_workload(
    spark: SparkSession, shared_data: Find, tmp_path: Path
) -> None:
    files = dumps(shared_data, FOUR_MONTHS)
    options = Options(nodes=100, seed=1)
    counts = make_from_dumps(spark, files, options, tmp_path / "out")
    assert (counts.lines, counts.broken, counts.broken_files) == (27_695, 0, 0)
    assert (counts.deleted, counts.repeated, counts.events) == (7_464, 0, 20_231)
    assert (counts.authors, counts.topics, counts.subscriptions) == (3_204, 21, 572)
    assert counts.deliveries_due == 1_960_496
    assert_equal(spark, tmp_path / "out", counts, oracle_of(read_all(files), options))


@pytest.fixture(scope="module")
def made_of_2011(
    spark: SparkSession, shared_data: Find, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Counts]:
    """A workload of the later format; shared, since it takes seconds."""
    out = tmp_path_factory.mktemp("workload") / "out"
    return out, make_from_dumps(spark, dumps(shared_data, SAMPLE_2011), OF_2011, out)


OF_2011 = Options(nodes=30, seed=5, bodies=True)


def test_the_later_format_makes_plain_pythons_workload_with_all_texts(
    spark: SparkSession, shared_data: Find, made_of_2011: tuple[Path, Counts]
) -> None:
    out, counts = made_of_2011
    assert (counts.lines, counts.broken, counts.deleted) == (9_146, 0, 1_388)
    assert_equal(spark, out, counts, oracle_of(read_all(dumps(shared_data, SAMPLE_2011)), OF_2011))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "options"),
    [
        (FOUR_MONTHS, Options(nodes=100, seed=1)),
        (SAMPLE_2011, Options(nodes=40, seed=7)),
        (SAMPLE_2011, Options(nodes=40, seed=7, sample=5_000, redraw=True)),
        (FOUR_MONTHS, Options(nodes=20, seed=3, sample=2_000, bodies=True)),
        (FOUR_MONTHS, Options(nodes=100, seed=1, first=20_000)),
        (FOUR_MONTHS, Options(nodes=5_000, seed=1)),
    ],
    ids=[
        "four months",
        "2011",
        "a sample, redrawn",
        "a sample with texts",
        "the first",
        "more nodes than authors",
    ],
)
def test_every_option_gives_plain_pythons_workload_on_1_and_64_partitions(
    spark: SparkSession,
    shared_data: Find,
    tmp_path: Path,
    names: tuple[str, ...],
    options: Options,
) -> None:
    files = dumps(shared_data, names)
    made = assert_independent_of_partitions(spark, files, options, tmp_path)
    assert_equal(spark, tmp_path / "64", made[64], oracle_of(read_all(files), options))


@pytest.mark.slow
def test_another_seed_makes_another_workload_and_the_same_one_the_same(
    spark: SparkSession, shared_data: Find, tmp_path: Path
) -> None:
    files = dumps(shared_data, SAMPLE_2011)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_from_dumps(spark, files, Options(nodes=20, seed=seed, sample=500), tmp_path / name)
    a, b, c = (rows(spark, tmp_path / name, "events") for name in "abc")
    assert a == b
    assert {row[3] for row in a} != {row[3] for row in c}


DUCKDB = """
create table comments as
select created_utc::bigint as created_utc, id, author, subreddit as topic
from read_json($file, format = 'newline_delimited', columns = {
    created_utc: 'varchar', id: 'varchar', author: 'varchar', subreddit: 'varchar'});
create table ordered as
select row_number() over (order by created_utc, length(id), id) - 1 as internal_id, *
from comments where author <> '[deleted]';
create table users as
select row_number() over (order by first) as node, author, first from (
    select author, min(internal_id) as first from ordered group by author
) order by first limit $nodes;
create macro draw(purpose, text, n) as
    ('0x' || substr(sha256($seed || '/' || purpose || '/' || text), 1, 16))::ubigint % n;
create table events as
select internal_id, coalesce(node, 1 + draw('author', author, $nodes))::int as node, topic
from ordered left join users using (author);
create table topics as
select topic, (1 + draw('topic', topic, (
    select count(*) from users where users.first <= seen.first)::ubigint))::int as node,
    first, event_count, subscriber_count
from (select topic, min(internal_id) as first, count(*) as event_count,
    count(distinct node) as subscriber_count from events group by topic) seen;
"""


def test_another_engine_agrees_on_every_node_and_count(
    shared_data: Find, made_of_2011: tuple[Path, Counts]
) -> None:
    out, counts = made_of_2011
    database = duckdb.connect()
    given = {
        "$file": f"'{shared_data(f'reddit/{SAMPLE_2011[0]}')}'",
        "$nodes": "30",
        "$seed": "'5'",
    }
    script = DUCKDB
    for name, value in given.items():
        script = script.replace(name, value)
    database.execute(script)
    for table, columns in (("events", "internal_id, node, topic"), ("topics", "*")):
        theirs = f"select {columns} from {table}"
        ours = f"select {columns} from read_parquet('{out}/{table}/*.parquet')"
        assert database.execute(f"{theirs} except all {ours}").fetchall() == []
        assert database.execute(f"{ours} except all {theirs}").fetchall() == []
    deleted = "select count(*), count(*) filter (author = '[deleted]') from comments"
    assert database.execute(deleted).fetchall() == [(counts.lines, counts.deleted)]
    due = "select sum(event_count * subscriber_count), sum(subscriber_count) from topics"
    assert database.execute(due).fetchall() == [(counts.deliveries_due, counts.subscriptions)]


# Small ones, made here: everything that the real dumps happen not to have.

NAMES = ('quote"d', "back\\slash", "tab\tbed", "zürich", "a b", "{}", "'", "node-1", "\u2028")


def comment(**changes: object) -> dict[str, object]:
    usual: dict[str, object] = {
        "id": "c1",
        "author": "someone",
        "subreddit": "here",
        "created_utc": 7,
        "body": 'Grüße \u2028 \U0001f600 "quoted" \\ \n',
        "ups": 1,
        "controversiality": 0,
    }
    return {**usual, **changes}


def to_lines(records: list[dict[str, object]]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def test_places_are_the_same_on_any_number_of_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(3)
    keys = [(rng.randrange(5), rng.randrange(200), number) for number in range(600)]
    wanted: dict[tuple[int, int], tuple[int, int]] = {}
    for a, b, c in sorted(keys):
        wanted.setdefault((a, b), (c, len(wanted)))
    rows_ = spark.createDataFrame(keys, "a int, b int, c int").repartition(8)
    for count in (1, 64):
        with partitions(spark, count):
            numbered = number_rows(rows_, ["a", "b"], tmp_path / str(count), first_by=["c"])
            found = {(row.a, row.b): (row.c, row.position) for row in numbered.collect()}
        assert found == wanted
        files = len(list((tmp_path / str(count)).glob("part-*.parquet")))
        assert count * 0.8 <= files <= count


def test_whatever_else_may_be_in_dumps_makes_plain_pythons_workload(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Repeated comments, odd names and ids, broken lines, a file cut off; with a redraw."""
    named = [
        comment(id=f"c{number}", author=name, subreddit=NAMES[-number], ups=-number)
        for number, name in enumerate(NAMES, start=1)
    ]
    first = [
        *named,
        comment(id="c2", ups=98, author="not the first c2"),
        comment(id="zz"),
        comment(id="z", author="z comes before zz and c1"),
        comment(id="c3", author="[deleted]"),
    ]
    second = [
        comment(id="c2", created_utc="7", ups=99),
        comment(id="e1", created_utc=8, author="too late", subreddit="nowhere else"),
        *(
            comment(id=f"d{number:02}", author=NAMES[number % 9], subreddit=NAMES[number % 4])
            for number in range(40)
        ),
    ]
    broken = b'{"id":\n\n{"id":"c1","author":"a"}\nno JSON\n'
    (tmp_path / "a.gz").write_bytes(gzip.compress(to_lines(first) + broken))
    # Two streams, as parallel compressors write; half of the second is missing.
    cut_off = bz2.compress(to_lines(first))
    whole = bz2.compress(to_lines(second)) + cut_off[: len(cut_off) // 2]
    (tmp_path / "b.bz2").write_bytes(whole)
    (tmp_path / "c").touch()

    # All but the one that is later than any: its author and its topic are not seen.
    options = Options(nodes=4, first=len(first + second) - 1, redraw=True, bodies=True)
    files = [tmp_path / name for name in ("c", "b.bz2", "a.gz")]
    out = tmp_path / "out"
    counts = make_from_dumps(spark, files, options, out)
    assert (counts.lines, counts.broken, counts.broken_files) == (59, 4, 1)
    assert counts.reasons == {"empty line": 1, "file broken": 1, "not JSON": 2, "not a comment": 1}
    assert (counts.taken, counts.deleted, counts.repeated, counts.events) == (54, 1, 2, 51)
    assert_equal(spark, out, counts, oracle_of(first + second, options))

    quarantine = sorted(tuple(row) for row in read(spark, out, "quarantine").collect())
    assert [(Path(file).name, number, reason) for file, number, reason, *_ in quarantine] == [
        ("a.gz", 14, "not JSON"),
        ("a.gz", 15, "empty line"),
        ("a.gz", 16, "not a comment"),
        ("a.gz", 17, "not JSON"),
        ("b.bz2", 43, "file broken"),
    ]
    events = rows(spark, out, "events")
    assert [events[place][3] for place in (0, 1, 9, 10, 11)] == ["z", "c1", "c9", "zz", "d00"]
    assert [event[7] for event in events if event[3] == "c2"] == [-2]
    # Redrawn: no author but those of the nodes has one of its own.
    nodes = read(spark, out, "authors").where("node is not null").select("node", "author")
    assert sorted(tuple(row) for row in nodes.collect()) == [
        row[:2] for row in rows(spark, out, "users")
    ]


def test_a_workload_is_not_made_of_nothing_and_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "a.ndjson"
    file.write_bytes(to_lines([comment(author="[deleted]")]))
    out = tmp_path / "out"
    with pytest.raises(LocalError, match="no comment of a known author"):
        make_from_dumps(spark, [file], Options(), out)
    with pytest.raises(LocalError, match="no such file"):
        make_from_dumps(spark, [tmp_path / "b.ndjson"], Options(), out)
    assert [path.name for path in tmp_path.iterdir()] == ["a.ndjson"]
    out.mkdir()
    (out / "mine").touch()
    with pytest.raises(LocalError, match="not empty"):
        make_from_dumps(spark, [file], Options(), out)
    assert [path.name for path in out.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    "changes", [{"nodes": 0}, {"first": 0}, {"sample": 0}, {"first": 1, "sample": 1}]
)
def test_options_without_meaning_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(LocalError):
        Options(**changes)
