"""Writes of one topic: the node's own, or a stranger's, which the disk may leave out."""

from random import Random

from pulsarcast.protocol.effects import Persist
from pulsarcast.protocol.store import DropTopic, Keep, PutState, StateRow
from pulsarcast.protocol.topic.writing import Writing
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, topic_of

ROW = PutState(StateRow("test", b"", b""))


class Topic:
    """Counts how often the disk left something out, and tells of what was written."""

    def __init__(self, place: str | None = "192.0.2.0/24") -> None:
        self.turn = Turn(ALICE, Random(1))
        self.writing = Writing(self.turn, self, place)
        self.left_out = 0
        self.written: list[str] = []

    def found_no_room(self) -> None:
        self.left_out += 1

    def write(self, name: str, *, own: bool = False) -> None:
        self.writing.persist(ROW, own=own, then=lambda: self.written.append(name))

    def settle(self, *, full: bool) -> list[bool]:
        """The disk answers; returns which writes it might have left out."""
        persists = [each for each in self.turn.effects if isinstance(each, Persist)]
        self.turn.effects = []
        keeps = [
            [each for each in persist.writes if isinstance(each, Keep)] for persist in persists
        ]
        for persist, optional in zip(persists, keeps, strict=True):
            self.turn.persisted(persist.token, [each.token for each in optional if full])
        return [bool(optional) for optional in keeps]


def test_what_is_kept_for_a_stranger_may_be_left_out_and_the_topic_hears_of_it() -> None:
    topic = Topic()
    topic.write("first")
    assert topic.settle(full=False) == [True]
    assert topic.writing.is_whole
    topic.write("second")
    assert topic.settle(full=True) == [True]
    assert (topic.written, topic.left_out) == (["first"], 1)
    assert not topic.writing.is_whole


def test_the_nodes_own_writes_are_never_left_out() -> None:
    topic = Topic(place=None)
    topic.write("ours")
    assert topic.settle(full=True) == [False]
    kept = Topic()
    kept.write("our event", own=True)
    kept.writing.claim()
    kept.write("after the claim")
    assert kept.settle(full=True) == [False, False]
    assert (topic.written, kept.written) == (["ours"], ["our event", "after the claim"])


def test_a_kept_topic_speaks_of_what_was_written_once_that_is_decided() -> None:
    said: list[str] = []
    topic = Topic()
    topic.write("first")
    topic.writing.when_written(lambda: said.append("page"))
    assert said == []
    topic.settle(full=False)
    assert said == ["page"]
    ours = Topic(place=None)
    ours.writing.when_written(lambda: said.append("at once"))
    assert said == ["page", "at once"]


def test_only_writes_that_all_make_room_are_tried_where_there_is_little() -> None:
    drop = DropTopic(topic_of(ALICE).cid)
    assert Keep(1, "", (drop,)).only_frees
    assert not Keep(1, "", (drop, ROW)).only_frees
