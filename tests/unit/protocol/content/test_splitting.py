"""Splitting: pieces stay until the home of their leaf has them, and are sent again until then."""

from pulsarcast.protocol.content.messages import PlaceState, PlaceTaken, Purpose
from pulsarcast.protocol.content.space import is_below
from pulsarcast.protocol.content.splitting import Splitting
from tests.support.people import BOB
from tests.unit.protocol.content.parts import Parts
from tests.unit.protocol.content.stage import AT, TOPIC, held_of

LOWS = (0.0, 0.1, 0.2, 0.3, 0.4)


class Routed:
    """Plays the places: remembers the pieces that are brought to their leaves."""

    def __init__(self) -> None:
        self.states: list[PlaceState] = []

    def route_state(self, message: PlaceState) -> None:
        self.states.append(message)


def test_only_the_home_that_got_the_pieces_can_say_that_it_has_them() -> None:
    parts, routed = Parts(), Routed()
    splitting = Splitting(parts.context, parts.trees, routed)
    held = [held_of(BOB, sid=sid, low=low) for sid, low in enumerate(LOWS)]
    place = parts.hold(AT, *held)
    splitting.split(place, capacity=len(LOWS))
    assert place.is_split
    assert sum(len(each.held) for each in routed.states) == len(LOWS) == len(place.kept)
    assert all(is_below(each.at, AT) and each.at != AT for each in routed.states)
    assert all(each.purpose is Purpose.TRANSFER for each in routed.states)
    first = routed.states[0]
    made_up = PlaceTaken(TOPIC.topic, "price", first.at, first.token + 1)
    splitting.taken(parts.places, made_up)
    assert len(place.kept) == len(LOWS)
    splitting.taken(parts.places, PlaceTaken(TOPIC.topic, "price", first.at, first.token))
    assert len(place.kept) == len(LOWS) - len(first.held)


def test_pieces_that_no_home_has_taken_are_sent_again_under_another_token() -> None:
    parts, routed = Parts(), Routed()
    splitting = Splitting(parts.context, parts.trees, routed)
    place = parts.hold(AT, held_of(BOB))
    splitting.split(place, capacity=1)
    parts.core.fire()
    before, again = routed.states
    assert (again.held, again.at) == (before.held, before.at)
    assert again.token != before.token


def test_a_rate_is_too_much_only_where_there_is_a_bound() -> None:
    parts = Parts()
    splitting = Splitting(parts.context, parts.trees, Routed())
    bound = parts.context.parameters.content_load_max
    assert not splitting.is_too_much(bound)
    assert splitting.is_too_much(bound + 1)
    splitting.load_max = 0
    assert not splitting.is_too_much(bound + 1)
