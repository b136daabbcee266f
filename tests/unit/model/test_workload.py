import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from pulsarcast.model.errors import LocalError
from pulsarcast.model.workload import WorkloadEvent, WorkloadTopic, parse_workload

# Listing 5.1 of the thesis; in a file each of the two is one line.
TOPIC_LINE = """{
    "type": "topic", "node": "node-71", "name": "reddit.com",
    "author": "test-user", "totalNumberEvents": 1
}"""
USER_LINE = """{
    "type": "user", "name": "foobar", "node": "node-71",
    "events": [
        {"internalId": 0, "topic": "reddit.com", "body": "test",
         "ups": 1, "downs": 0, "controversiality": 0},
        {"internalId": 176, "topic": "reddit.com", "body": "test-123",
         "ups": 1, "downs": 4, "controversiality": 0}
    ],
    "subscriptions": {"reddit.com": true, "politics": true, "off": false}
}"""
LISTING = [TOPIC_LINE, "\n", USER_LINE]


def test_listing_5_1_is_read() -> None:
    workload = parse_workload(LISTING)
    assert workload.topics == [WorkloadTopic("reddit.com", "node-71", 1)]
    (user,) = workload.users
    assert (user.name, user.node) == ("foobar", "node-71")
    assert user.events == [
        WorkloadEvent(0, "reddit.com", 1, "test"),
        WorkloadEvent(176, "reddit.com", 1, "test-123"),
    ]
    assert user.subscriptions == ["reddit.com", "politics"]


def test_lines_may_be_bytes() -> None:
    assert parse_workload(line.encode() for line in LISTING) == parse_workload(LISTING)


@pytest.mark.parametrize(
    "line", ["nonsense", "{}", '{"type":"other"}', '{"type":"topic","name":1}', b"\xff"]
)
def test_a_wrong_line_is_named_by_its_number(line: str | bytes) -> None:
    with pytest.raises(LocalError, match="line 4"):
        parse_workload([*LISTING, line])


@pytest.mark.parametrize(
    ("size", "topics", "events", "due"),
    [("10k", 22, 7252, 706_731), ("25k", 23, 17_611, 1_734_851)],
)
def test_the_thesis_own_workload_has_the_figures_it_is_known_by(
    shared_data: Callable[[str], Path], size: str, topics: int, events: int, due: int
) -> None:
    path = shared_data(f"reddit/workload-{size}.ndjson.zst")
    with path.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file))
        workload = parse_workload(lines)
    subscribers = Counter(topic for user in workload.users for topic in user.subscriptions)
    published = [event.topic for user in workload.users for event in user.events]
    assert (len(workload.topics), len(workload.users)) == (topics, 100)
    assert len(published) == events
    assert sum(subscribers[topic] for topic in published) == due
