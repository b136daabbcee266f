"""Pacing: a publisher follows the median of the members that get its events from it."""

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.dht import placing
from pulsarcast.protocol.dissemination.overlay import ENVELOPE_BYTES
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import LinkFree, LinkFull, Publish
from pulsarcast.protocol.messages import Credit, EventMessage, Join, Role
from pulsarcast.protocol.parameters import Parameters
from tests.support.people import identity
from tests.support.solo import Solo

WINDOW = 7 * ENVELOPE_BYTES
NAMES = ("one", "two", "three")


def root() -> tuple[Solo, Cid, list[PeerId]]:
    """The author of a topic with three members below it."""
    solo = Solo(parameters=Parameters(window_bytes=WINDOW)).start()
    topic = solo.create()
    members = [identity(name).peer_id for name in NAMES]
    for member in members:
        solo.hear(member, Join(topic, 1, Role.MEMBER, solo.me, False, False))
    solo.sent.clear()
    return solo, topic, members


def ask(solo: Solo, topic: Cid) -> Reply:
    return solo.ask(lambda call: Publish(call, topic, bytes(500)))


def until_busy(solo: Solo, topic: Cid) -> float:
    """Publish until there is no room; when to come back."""
    for _ in range(100):
        refusal = ask(solo, topic).refusal
        if refusal is not None:
            assert refusal.code == "busy"
            return refusal.after_s
    raise AssertionError("there is always room")


def test_a_publisher_waits_for_the_median_of_the_members() -> None:
    solo, topic, members = root()
    assert until_busy(solo, topic) > 0.0
    sent = len(solo.sent_to(members[0], EventMessage))
    assert sent * ENVELOPE_BYTES < 2 * WINDOW
    solo.hear(members[0], Credit(topic, WINDOW))
    assert ask(solo, topic).refusal is not None, "one of three does not make a pace"
    solo.hear(members[1], Credit(topic, WINDOW))
    assert ask(solo, topic).refusal is None
    assert solo.topic(topic).overlay.links[members[2]].credit < 0, "the slowest comes later"


def test_members_that_take_nothing_at_all_are_followed_for_a_while_only() -> None:
    solo, topic, _ = root()
    until_busy(solo, topic)
    solo.advance(0.9 * Parameters().stall_s)
    assert ask(solo, topic).refusal is not None
    solo.advance(0.2 * Parameters().stall_s)
    assert ask(solo, topic).refusal is None


def test_a_full_link_has_no_room_whatever_its_credit() -> None:
    solo, topic, members = root()
    for member in members[:2]:
        solo.give(LinkFull(member))
    assert ask(solo, topic).refusal is not None
    solo.give(LinkFree(members[0]))
    assert ask(solo, topic).refusal is None


def test_the_time_to_come_back_follows_the_pauses_of_the_members() -> None:
    solo, topic, members = root()
    until_busy(solo, topic)
    solo.advance(1.5)
    for member in members:
        solo.hear(member, Credit(topic, WINDOW))
    assert 0.7 < until_busy(solo, topic) < 0.8


def test_a_publisher_waits_for_replicas(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    solo, topic, _ = root()
    assert ask(solo, topic).refusal is None
    monkeypatch.setattr(placing, "BUSY_BYTES", -1)
    refusal = ask(solo, topic).refusal
    assert refusal is not None
    assert (refusal.code, refusal.after_s > 0) == ("busy", True)


def test_nothing_is_kept_of_what_was_refused() -> None:
    solo, topic, _ = root()
    until_busy(solo, topic)
    newest = solo.topic(topic).log.newest
    until_busy(solo, topic)
    assert solo.topic(topic).log.newest == newest
