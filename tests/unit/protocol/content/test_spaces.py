"""Spaces: one lookup for all that wait for a version, and a bound on those that wait."""

import pytest

from pulsarcast.model.errors import LocalError
from pulsarcast.model.filters import parse
from pulsarcast.model.filters.domains import domains_of
from pulsarcast.model.topic_types import AttributeRule, TopicSettings
from pulsarcast.protocol.content import spaces as spaces_module
from pulsarcast.protocol.content.spaces import Routed, Spaces, routes_of
from pulsarcast.protocol.topic.versions import Versions
from tests.support.parts import Core
from tests.support.people import BOB, topic_of, version_of
from tests.unit.protocol.content.stage import TOPIC

SECOND = version_of(TOPIC, signer=BOB)


def test_all_that_wait_for_a_version_share_one_lookup_and_get_it() -> None:
    core, found = Core(), list[Versions | None]()
    core.descriptors.keep(Versions(TOPIC))
    spaces = Spaces(core.descriptors, core.following)
    for _ in range(2):
        spaces.find(TOPIC.topic, SECOND.cid, found.append)
    assert core.network.found(SECOND.block) == SECOND.cid
    assert core.network.finding == []
    assert [each is not None and SECOND.cid in each.by_cid for each in found] == [True, True]


def test_only_what_must_wait_always_waits_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spaces_module, "WAITING_MAX", 1)
    core, found = Core(), list[Versions | None]()
    spaces = Spaces(core.descriptors, core.following)
    spaces.find(TOPIC.topic, TOPIC.cid, found.append)
    spaces.find(TOPIC.topic, TOPIC.cid, found.append)
    assert found == [None]
    spaces.find(TOPIC.topic, TOPIC.cid, found.append, always=True)
    assert found == [None]
    core.network.found(TOPIC.block)
    assert len(found) == 3
    assert None not in found[1:]


SCHEMA = (
    AttributeRule("price", "float", 0, 100),
    AttributeRule("name", "str"),
    AttributeRule("sensor", "str", "s-0", "s-9"),
    AttributeRule("hot", "bool"),
)


def routes(where: str) -> list[Routed]:
    return routes_of(parse(where, SCHEMA), domains_of(SCHEMA))


@pytest.mark.parametrize(
    "where",
    [
        "name starts with 'sen'",
        "name = 'sensor-1'",
        "name in 'a'..'b'",
        "name < 'm'",
        "name >= 'm'",
        "name ends with 'x'",
        "name matches 'x'",
        "name != 'x'",
        "not name starts with 'x'",
        "name is present",
        "hot and name starts with 'x'",
    ],
)
def test_a_filter_on_texts_alone_is_routed_by_them(where: str) -> None:
    found = routes(where)
    assert {each.attribute for each in found} == {"name"}
    assert all(0.0 <= each.low <= each.high <= 1.0 for each in found)


@pytest.mark.parametrize("where", ["hot", "name is missing", "hot or name = 'x'"])
def test_a_filter_without_any_range_is_not_routed(where: str) -> None:
    with pytest.raises(LocalError, match="no number and no text"):
        routes(where)


def test_bounds_make_room_for_what_follows_their_common_prefix() -> None:
    ((_, low, high),) = routes("sensor starts with 's-5'")
    assert 0.05 < high - low < 0.2


def test_a_text_counts_as_less_selective_than_a_narrow_range_of_numbers() -> None:
    """Half of all events may say the same text; of a narrow range of numbers few do."""
    ((attribute, _, _),) = routes("name = 'N' and price in 10..10.5")
    assert attribute == "price"
    ((attribute, _, _),) = routes("name = 'N' and price in 10..20")
    assert attribute == "name"


def test_texts_listed_beside_a_number_make_one_route() -> None:
    assert routes("name in ('a', 'b', 'c') and price in 10..10.5") == [Routed("price", 0.1, 0.105)]


def test_an_event_lies_in_the_spaces_of_its_texts() -> None:
    core = Core()
    settings = TopicSettings(attributes=SCHEMA)
    versions = Versions(topic_of(BOB, settings))
    spaces = Spaces(core.descriptors, core.following)
    places = spaces.places(versions, {"price": "9", "name": "ann", "sensor": 5, "hot": True})
    assert list(places) == ["name"]
