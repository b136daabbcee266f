"""Calls: answers, deadlines and losses."""

from random import Random

from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import peer_id_of
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.calls import Calls
from pulsarcast.protocol.dht.routing import RoutingTable
from pulsarcast.protocol.effects import Know, Send, SetTimer
from pulsarcast.protocol.messages import Contact, DhtMessage, FindPeers, Peers, Stored, WantBlocks
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn

TIMEOUT_S = 5.0
PEER = Contact(peer_id_of(bytes(31) + b"1"))
OTHER = Contact(peer_id_of(bytes(31) + b"2"))


class Asker:
    """A node that asks, and keeps what it hears."""

    def __init__(self) -> None:
        self.turn = Turn(Identity.from_seed(bytes(32)), Random(1))
        context = Context(self.turn, Parameters(rpc_timeout_s=TIMEOUT_S))
        self.failed: list[Contact] = []
        self.answers: list[DhtMessage | None] = []
        self.table = RoutingTable(self.turn.me, bucket_size=20, retry_s=30.0)
        self.calls = Calls(context, self.table, self.failed.append)

    def ask(self, contact: Contact) -> int:
        """Ask, and return the request's number."""
        self.calls.ask(contact, FindPeers(0, 0), self.answers.append)
        sent = self.turn.effects[-1]
        assert isinstance(sent, Send)
        assert isinstance(sent.message, FindPeers)
        return sent.message.request

    def timers(self) -> list[SetTimer]:
        return [effect for effect in self.turn.effects if isinstance(effect, SetTimer)]


def test_an_answer_reaches_whoever_asked_once() -> None:
    asker = Asker()
    request = asker.ask(PEER)
    answer = Peers(request, ())
    assert asker.calls.answer(PEER.peer, request, answer)
    assert not asker.calls.answer(PEER.peer, request, answer)
    assert asker.answers == [answer]


def test_an_answer_of_another_peer_or_kind_or_number_is_ignored() -> None:
    asker = Asker()
    request = asker.ask(PEER)
    assert not asker.calls.answer(OTHER.peer, request, Peers(request, ()))
    assert not asker.calls.answer(PEER.peer, request, Stored(request, ()))
    assert not asker.calls.answer(PEER.peer, request + 2, Peers(request + 2, ()))
    assert asker.answers == []
    assert len(asker.calls) == 1


def test_many_questions_share_one_timer() -> None:
    asker = Asker()
    for tick in range(10):
        asker.turn.now = tick / 10
        asker.ask(PEER)
    (timer,) = asker.timers()
    asker.turn.now = TIMEOUT_S
    asker.turn.fired(timer.timer)
    assert asker.answers == [None]
    assert asker.failed == [PEER]
    assert len(asker.calls) == 9
    _, timer = asker.timers()
    assert abs(timer.delay_s - 0.1) < 1e-9
    asker.turn.now = TIMEOUT_S + 1
    asker.turn.fired(timer.timer)
    assert asker.answers == [None] * 10
    assert len(asker.timers()) == 2, "nobody waits, so no timer does"


def test_a_lost_peer_fails_its_questions_at_once_and_no_others() -> None:
    asker = Asker()
    asker.ask(PEER)
    request = asker.ask(OTHER)
    asker.calls.lost(PEER.peer)
    assert asker.answers == [None]
    assert asker.calls.answer(OTHER.peer, request, Peers(request, ()))


def test_the_driver_is_told_where_a_peer_lives_that_only_others_named() -> None:
    asker = Asker()
    contact = Contact(PEER.peer, ("/ip4/10.0.0.1/tcp/1",))
    asker.ask(contact)
    assert Know(contact) in asker.turn.effects
    asker.turn.effects.clear()
    asker.table.saw(contact, 0.0)
    asker.ask(contact)
    assert Know(contact) not in asker.turn.effects


def test_questions_answered_by_a_question_have_odd_numbers() -> None:
    asker = Asker()
    assert asker.ask(PEER) % 2 == 0
    asker.calls.ask(PEER, WantBlocks(0, ()), asker.answers.append)
    sent = asker.turn.effects[-1]
    assert isinstance(sent, Send)
    assert isinstance(sent.message, WantBlocks)
    assert sent.message.request % 2 == 1
    assert asker.ask(PEER) % 2 == 0
