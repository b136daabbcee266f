"""Routing: what was given to a peer that turns out to be gone goes another way, once."""

from pulsarcast.model.ids import cid_of
from pulsarcast.protocol.content.messages import ProbeEvent
from pulsarcast.protocol.content.routing import UNSURE_MAX, UNSURE_S, Routing
from tests.support.parts import Core
from tests.support.people import peer

GONE, OTHER = peer("gone"), peer("other")


def routing() -> Routing:
    core = Core()
    return Routing(core.context, core.dht)


def probe(number: int) -> ProbeEvent:
    return ProbeEvent(cid_of(b"topic"), b"%d" % number, ())


def test_what_a_lost_peer_was_just_given_is_given_back_once() -> None:
    found = routing()
    found.send_probe(GONE, probe(1))
    found.send_probe(OTHER, probe(2))
    found.send_probe(GONE, probe(3))
    assert found.lost(GONE) == [probe(1), probe(3)]
    assert found.lost(GONE) == []
    assert found.lost(OTHER) == [probe(2)]


def test_what_it_was_given_long_ago_has_arrived() -> None:
    found = routing()
    found.send_probe(GONE, probe(1))
    found._turn.now += UNSURE_S
    found.send_probe(GONE, probe(2))
    assert found.lost(GONE) == [probe(1), probe(2)]
    found.send_probe(GONE, probe(3))
    found._turn.now += UNSURE_S + 0.1
    assert found.lost(GONE) == []


def test_only_so_many_are_remembered() -> None:
    found = routing()
    for number in range(2 * UNSURE_MAX):
        found.send_probe(GONE, probe(number))
    assert found.lost(GONE) == [probe(number) for number in range(UNSURE_MAX, 2 * UNSURE_MAX)]
