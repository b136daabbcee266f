"""Our own subscriptions in others' keeping: sent until somebody keeps them, renewed, ended."""

import heapq
from random import Random
from typing import cast

import msgspec
import pytest

from pulsarcast.model.ids import PeerId
from pulsarcast.model.subscriptions import decode_subscription
from pulsarcast.protocol.content.homes import Homes
from pulsarcast.protocol.content.messages import Installed, PlaceSubscription
from pulsarcast.protocol.content.rules import LINE_S, ContentRules
from pulsarcast.protocol.content.shape import Shape
from pulsarcast.protocol.content.space import CUT_OFF, CUT_OFFS, ROOT, Line
from pulsarcast.protocol.content.subscriber import HOME_LOST_S, RENEW_SHARE, Subscriber
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.effects import Send, SetTimer
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.topic.versions import Versions
from tests.support.people import ALICE, peer
from tests.unit.protocol.content.stage import TOPIC, WHERE

HOME, OTHER = peer("home"), peer("other")
LEASE_S = Parameters().content_lease_s
WAIT_S = 2 * Parameters().rpc_timeout_s
SID = 3


class Post:
    """A subscriber, and where its pieces go; time passes as the test says."""

    def __init__(self, where: str = WHERE) -> None:
        node = Node(ALICE, Random(1), Parameters())
        self.turn = node.turn
        self.routed: list[PlaceSubscription] = []
        """Sent by way of whoever is closer."""
        self.lines_asked: list[str] = []
        self.installed = 0
        self.subscriber = Subscriber(
            Context(node.turn, node.parameters, parts={ContentRules: self._rules()}),
            cast(Homes, self),
            node.content.spaces,
            node.content.trees,
        )
        self.trees = node.content.trees
        self._due: list[tuple[float, int]] = []
        self.subscriber.install(Versions(TOPIC), SID, 1, where)

    def _rules(self) -> type[ContentRules]:
        post = self

        class Rules(ContentRules):
            def kept(self, subscriber: PeerId, sid: int) -> None:
                assert (subscriber, sid) == (ALICE.peer_id, SID)
                post.installed += 1

        return Rules

    def place(self, message: PlaceSubscription, sender: PeerId | None) -> None:
        """As `Homes` does."""
        self.routed.append(message)

    @property
    def shape_hints(self) -> "Post":
        """As `Homes` has it."""
        return self

    def ask_line(self, topic: object, attribute: str) -> None:
        """As `ShapeHints` does."""
        self.lines_asked.append(attribute)

    def hear_line(self, line: Line) -> None:
        """The root's home tells the line."""
        self.trees.shape(TOPIC.cid, "price").hear_line(line, self.turn.now)
        self.subscriber.follow_line(TOPIC.cid, "price")

    def answer(self, message: PlaceSubscription, home: PeerId = HOME, leaf: int = 9) -> None:
        """A home keeps a piece."""
        record = decode_subscription(message.held.record)
        kept = Installed(
            message.topic,
            record.sid,
            record.number,
            message.held.piece,
            message.attribute,
            leaf,
            message.token,
            1,
        )
        self.subscriber.installed(home, kept)

    def answer_all(self) -> None:
        for each in self.take():
            self.answer(each)

    def take(self) -> list[PlaceSubscription]:
        """What was routed since the last look."""
        routed, self.routed = self.routed, []
        return routed

    def sent(self) -> list[tuple[PeerId, PlaceSubscription]]:
        """What went to a home that we know, since the last look."""
        effects = self._effects()
        return [
            (each.peer, each.message)
            for each in effects
            if isinstance(each, Send) and isinstance(each.message, PlaceSubscription)
        ]

    def _effects(self) -> list[object]:
        effects, self.turn.effects = self.turn.effects, []
        for each in effects:
            if isinstance(each, SetTimer):
                heapq.heappush(self._due, (self.turn.now + each.delay_s, each.timer))
        return list(effects)

    def advance(self, seconds: float) -> list[tuple[PeerId, PlaceSubscription]]:
        """Let time pass; returns what went to homes meanwhile."""
        until, sent = self.turn.now + seconds, self.sent()
        while self._due and self._due[0][0] <= until:
            due_s, timer = heapq.heappop(self._due)
            self.turn.now = max(self.turn.now, due_s)
            self.turn.fired(timer)
            sent += self.sent()
        self.turn.now = until
        return sent


@pytest.fixture
def post() -> Post:
    return Post()


def test_a_subscription_is_installed_once_all_of_its_pieces_are_kept(post: Post) -> None:
    *first, last = post.take()
    assert first, "a wide range has several"
    for each in first:
        post.answer(each)
        assert not post.installed
        assert not post.subscriber.is_kept(TOPIC.cid, SID)
    post.answer(last)
    post.answer(last)
    assert post.installed == 1
    assert post.subscriber.is_kept(TOPIC.cid, SID)


def test_a_piece_is_sent_again_until_somebody_keeps_it_ever_more_seldom(post: Post) -> None:
    count = len(post.take())
    times = []
    for _ in range(200):
        post.advance(WAIT_S)
        times += [post.turn.now] * len(post.take())
    per_piece = len(times) / count
    assert 8 < per_piece < 30, "neither for ever at the first pace nor given up"
    assert post.turn.now - max(times) < 3 * 16 * WAIT_S


def test_what_is_kept_is_not_sent_again_before_its_lease_is_half_over(post: Post) -> None:
    count = len(post.routed)
    post.answer_all()
    assert post.advance(0.5 * RENEW_SHARE * LEASE_S) == []
    renewed = post.advance(1.5 * RENEW_SHARE * LEASE_S)
    assert {to for to, _ in renewed[:count]} == {HOME}
    assert {each.held.piece for _, each in renewed[:count]} == set(range(count))
    assert all(each.topic == TOPIC.cid for _, each in renewed)


def test_a_home_that_is_lost_is_looked_for_anew_after_a_while(post: Post) -> None:
    mine, *others = post.take()
    post.answer(mine)
    for each in others:
        post.answer(each, OTHER)
    post.subscriber.lost(HOME)
    assert not post.subscriber.is_kept(TOPIC.cid, SID)
    assert post.advance(0.4 * HOME_LOST_S) == []
    assert post.take() == []
    post.advance(1.2 * HOME_LOST_S)
    (again,) = {each.held.piece: each for each in post.take()}.values()
    assert (again.topic, again.held.piece) == (TOPIC.cid, mine.held.piece)
    post.answer(again)
    assert post.subscriber.is_kept(TOPIC.cid, SID)


def test_answers_that_are_not_ours_change_nothing(post: Post) -> None:
    pieces = post.take()
    for each in pieces:
        record = decode_subscription(each.held.record)
        number, piece = record.number, each.held.piece
        good = Installed(TOPIC.cid, record.sid, number, piece, each.attribute, 9, each.token, 1)
        for bad in (
            msgspec.structs.replace(good, sid=SID + 1),
            msgspec.structs.replace(good, number=number + 1),
            msgspec.structs.replace(good, piece=len(pieces)),
            msgspec.structs.replace(good, attribute="size"),
            msgspec.structs.replace(good, token=each.token + 1),
        ):
            post.subscriber.installed(HOME, bad)
    assert not post.subscriber.is_kept(TOPIC.cid, SID)
    assert not post.installed


@pytest.mark.parametrize("is_known", [True, False])
def test_a_leaf_makes_us_ask_of_its_tree_where_we_know_nothing(post: Post, is_known: bool) -> None:
    shape = post.trees.shape(TOPIC.cid, "price")
    if is_known:
        shape.merge(ROOT, Shape().to_bytes())
        shape.hear_line(Line(), post.turn.now)
    post.answer_all()
    assert set(post.lines_asked) == (set() if is_known else {"price"})
    assert shape.is_known is is_known, "nobody is believed unasked"
    assert post.installed == 1


def test_who_ends_a_subscription_says_so_to_those_that_keep_it(post: Post) -> None:
    count = len(post.routed)
    post.answer_all()
    post.subscriber.cancel(TOPIC.cid, SID)
    ends = post.sent()
    assert [to for to, _ in ends] == [HOME] * count
    for _, each in ends:
        record = decode_subscription(each.held.record)
        assert (record.where, record.number) == ("", 2)
    assert len(post.subscriber) == 0
    assert post.advance(2 * LEASE_S) == []
    assert post.take() == []


def widths(pieces: list[PlaceSubscription]) -> list[float]:
    return [each.held.high - each.held.low for each in pieces]


def test_a_range_is_cut_anew_where_the_line_has_moved_and_old_pieces_end_last(post: Post) -> None:
    old = post.take()
    for each in old:
        post.answer(each)
    post.hear_line(Line(2, 0))
    new = post.take()
    assert max(widths(new)) <= CUT_OFFS[2]
    assert sum(widths(new)) == pytest.approx(sum(widths(old)))
    assert not {each.held.piece for each in new} & {each.held.piece for each in old}
    *first, last = new
    for each in first:
        post.answer(each)
    assert post.sent() == [], "the old pieces are needed until all new ones are kept"
    post.answer(last)
    ends = post.sent()
    assert {each.held.piece for _, each in ends} == {each.held.piece for each in old}
    assert all(decode_subscription(each.held.record).where == "" for _, each in ends)
    post.hear_line(Line(2, 2))
    assert post.take() == [], "nothing has changed for subscribers"
    post.hear_line(Line())
    assert max(widths(post.take())) > CUT_OFFS[1]


def test_a_range_that_no_line_cuts_stays_as_it_is_and_asks_for_no_line() -> None:
    post = Post("price in 10..10.1")
    post.answer_all()
    post.lines_asked.clear()
    post.advance(LINE_S)
    assert post.lines_asked == []
    post.take()
    post.hear_line(Line(6, 6))
    assert post.take() == []


def test_a_line_is_asked_for_before_it_is_too_old(post: Post) -> None:
    post.answer_all()
    post.lines_asked.clear()
    post.advance(LINE_S)
    assert post.lines_asked[0] == "price"
    post.subscriber.cancel(TOPIC.cid, SID)
    post.advance(LINE_S)
    post.lines_asked.clear()
    post.advance(5 * LINE_S)
    assert post.lines_asked == []


def test_a_subscription_begins_below_the_line_that_is_known() -> None:
    post = Post()
    assert max(widths(post.take())) <= CUT_OFF
    post.hear_line(Line(3, 3))
    post.take()
    post.subscriber.install(Versions(TOPIC), SID + 1, 1, WHERE)
    assert max(widths(post.take())) <= CUT_OFFS[3]


def test_a_filter_that_nothing_can_match_is_installed_at_once() -> None:
    post = Post("price < 10 and price > 20")
    assert post.take() == []
    assert post.installed == 1
