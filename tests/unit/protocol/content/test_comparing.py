"""Whose word moves a content subscriber's frontier, and who may give it."""

from collections.abc import Callable
from random import Random

import pytest

from pulsarcast.model.ids import PeerId, cid_of
from pulsarcast.protocol.content import comparing
from pulsarcast.protocol.content.comparing import LATE_MAX, MARKS_MAX, Comparing
from pulsarcast.protocol.content.messages import MARKS_LEFT_OUT, CompareContent, ContentCompared
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.frontier import Source
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, BOB, peer

TOPIC = cid_of(b"topic")
SOURCE: Source = (BOB.peer_id, 7)
FIRST, SECOND, THIRD = (peer(name) for name in ("first", "second", "third"))


class Asker:
    """A subscriber's comparing, with the members that it finds and what comes of it."""

    id = TOPIC
    is_ordered = False

    def __init__(self, *members: PeerId, marks: dict[Source, int] | None) -> None:
        self.turn = Turn(ALICE, Random(1))
        self.members = list(members)
        self.high = dict(marks or {})
        context = Context(self.turn, Parameters())
        self.counts = context.counts
        self.heard: list[PeerId] = []
        self.comparing = Comparing(context, self)
        self.comparing.open(marks)

    def filters(self) -> tuple[str, ...]:
        return ("price < 10",)

    def find_members(self, then: Callable[[list[PeerId]], None]) -> None:
        then(list(self.members))

    def start(self, marks: dict[Source, int]) -> None:
        """Nothing starts here."""

    def compared(self, sender: PeerId, message: ContentCompared, decides: bool) -> bool:
        self.heard.append(sender)
        return True

    def confirmed(self, marks: dict[Source, int]) -> None:
        self.high.update(marks)

    @property
    def everyone_asked(self) -> set[PeerId]:
        """Who was asked anything so far."""
        return {effect.peer for effect in self.turn.effects if isinstance(effect, Send)}

    def asked(self, member: PeerId) -> CompareContent:
        """What a member was asked last."""
        sent = [
            effect.message
            for effect in self.turn.effects
            if isinstance(effect, Send) and effect.peer == member
        ]
        assert isinstance(sent[-1], CompareContent)
        return sent[-1]

    def answer(self, member: PeerId, high: int, *, log: int = 5) -> None:
        """A member has looked through its log, which stands there; log 0: which begins there."""
        marks = (MarkState(*SOURCE, 0, high, None),)
        place = 10 if log else 0
        request = self.asked(member).request
        message = ContentCompared(request, TOPIC, log, place, place, b"", (), marks, False)
        self.comparing.receive(member, message)

    def claim(self, member: PeerId, epochs: range, *, more: bool, log: int = 5) -> None:
        """A member says that there are so many numberings."""
        marks = tuple(MarkState(BOB.peer_id, epoch, 0, 1, None) for epoch in epochs)
        request, place = self.asked(member).request, 10 if log else 0
        answer = ContentCompared(request, TOPIC, log, place, place, b"", (), marks, more)
        self.comparing.receive(member, answer)

    def look_again(self) -> None:
        """The next round: another member may be found."""
        self.comparing._tick()


def test_the_word_of_one_does_not_count_while_the_other_is_asked() -> None:
    asker = Asker(FIRST, SECOND, marks={SOURCE: 2})
    asker.answer(FIRST, 9)
    assert asker.high == {SOURCE: 2}
    asker.answer(SECOND, 6)
    assert asker.high == {SOURCE: 6}


def test_what_a_member_found_is_taken_as_its_own() -> None:
    asker = Asker(FIRST, SECOND, marks={SOURCE: 2})
    asker.answer(SECOND, 6)
    asker.answer(FIRST, 9)
    assert asker.heard == [SECOND, FIRST]


@pytest.mark.parametrize(("marks", "count"), [({SOURCE: 2}, 2), (None, 1)])
def test_members_are_asked_as_soon_as_they_are_found_but_for_our_start_only_one(
    marks: dict[Source, int] | None, count: int
) -> None:
    asker = Asker(marks=marks)
    searches: list[Callable[[list[PeerId]], None]] = []
    asker.find_members = searches.append  # type: ignore[method-assign, assignment]
    asker.look_again()
    (found,) = searches
    assert not asker.everyone_asked
    found([FIRST, SECOND])
    assert len(asker.everyone_asked) == count


def test_what_one_said_counts_once_the_other_is_gone() -> None:
    asker = Asker(FIRST, SECOND, marks={SOURCE: 2})
    asker.answer(FIRST, 9)
    asker.members.remove(SECOND)
    asker.comparing.lost(SECOND)
    asker.look_again()
    # Nothing has moved since: what it said before still counts.
    request = asker.asked(FIRST).request
    nothing = ContentCompared(request, TOPIC, 5, 10, 10, b"", (), (), False)
    asker.comparing.receive(FIRST, nothing)
    assert asker.high == {SOURCE: 9}


def test_a_member_that_began_too_late_is_left_for_another() -> None:
    asker = Asker(FIRST, SECOND, THIRD, marks={SOURCE: 2})
    chosen, other = asker.comparing.members
    asker.answer(chosen, 7, log=0)
    assert asker.comparing.members == [other]
    assert asker.high == {SOURCE: 2}
    asker.answer(other, 9)
    assert asker.high == {SOURCE: 9}


def test_a_member_that_began_anew_is_shown_where_we_stand_once() -> None:
    asker = Asker(FIRST, marks={SOURCE: 2})
    asker.answer(FIRST, 9)
    asker.look_again()
    assert asker.asked(FIRST).log == 5
    for _ in range(2):
        refused = ContentCompared(asker.asked(FIRST).request, TOPIC, 0, 0, 0, b"", (), (), False)
        asker.comparing.receive(FIRST, refused)
        question = asker.asked(FIRST)
        assert (question.log, question.place) == (0, 0)
        assert [mark.high for mark in question.marks] == [9]
    assert not asker.comparing.members, "one that is no member any more is not asked for ever"


def test_where_all_members_began_too_late_what_nobody_has_is_given_up() -> None:
    asker = Asker(FIRST, marks={SOURCE: 2})
    for number in range(LATE_MAX):
        assert asker.high == {SOURCE: 2}, number
        asker.answer(FIRST, 7, log=0)
        asker.look_again()
    assert asker.high == {SOURCE: 7}
    assert asker.counts == {"content_skipped": 1}
    assert [mark.high for mark in asker.asked(FIRST).marks] == [7]


def test_one_that_serves_us_ends_the_count_of_those_that_cannot() -> None:
    asker = Asker(FIRST, marks={SOURCE: 2})
    for _ in range(LATE_MAX - 1):
        asker.answer(FIRST, 7, log=0)
        asker.look_again()
    asker.answer(FIRST, 3)
    asker.comparing.lost(FIRST)
    asker.look_again()
    asker.answer(FIRST, 7, log=0)
    assert asker.high == {SOURCE: 3}
    assert not asker.counts


@pytest.mark.parametrize(("count", "place"), [(MARKS_MAX, 0), (MARKS_MAX + 1, MARKS_LEFT_OUT)])
def test_a_member_is_shown_all_marks_or_told_that_they_are_left_out(count: int, place: int) -> None:
    asker = Asker(FIRST, marks={(BOB.peer_id, epoch): 1 for epoch in range(count)})
    question = asker.asked(FIRST)
    assert question.place == place
    assert len(question.marks) == (0 if place else count)


def test_an_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever answers fast enough fills our memory with numberings that it made up."""
    monkeypatch.setattr(comparing, "START_MARKS_MAX", 100)
    asker = Asker(FIRST, marks={SOURCE: 2})
    for page in range(20):
        asker.claim(FIRST, range(10 * page, 10 * page + 10), more=True)
    assert not asker.comparing.members
    assert len(asker.comparing) <= 100
    assert asker.counts == {"content_marks_too_many": 1}
    asker.look_again()
    asker.answer(FIRST, 9)
    assert asker.high == {SOURCE: 9}, "and it is asked again, as any other"


@pytest.mark.parametrize("members", [(FIRST,), (FIRST, SECOND)], ids=["alone", "with another"])
def test_numberings_that_a_member_makes_up_do_not_fill_our_memory(
    members: tuple[PeerId, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "START_MARKS_MAX", 100)
    asker = Asker(*members, marks={SOURCE: 2})
    for number in range(50):
        asker.look_again()
        asker.claim(FIRST, range(50 * number, 50 * number + 50), more=False)
        assert len(asker.comparing) <= 6 * 100
    for _ in range(2):
        for member in members:
            asker.look_again()
            asker.answer(member, 9)
    assert asker.high[SOURCE] == 9, "what is real goes on"


def test_where_members_say_that_their_logs_begin_does_not_fill_our_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparing, "START_MARKS_MAX", 100)
    asker = Asker(FIRST, marks={SOURCE: 2})
    for number in range(20 * LATE_MAX):
        asker.claim(FIRST, range(60 * number, 60 * number + 60), more=False, log=0)
        asker.look_again()
    assert asker.counts["content_skipped"] == 20
    assert len(asker.comparing) <= 6 * 100


def test_what_was_made_up_at_the_start_leaves_room_for_what_is_real(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparing, "START_MARKS_MAX", 100)
    made_up = {(BOB.peer_id, epoch): 1 for epoch in range(100, 200)}
    asker = Asker(FIRST, SECOND, marks=made_up)
    for _ in range(2):
        for member in (FIRST, SECOND):
            asker.answer(member, 9)
            asker.look_again()
    assert asker.high[SOURCE] == 9
