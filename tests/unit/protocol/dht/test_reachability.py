"""Reach: how a node finds out whether peers can dial it, and what it knows of its peers'."""

from random import Random

import pytest

from pulsarcast.model.ids import PeerId, peer_key
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht import reachability
from pulsarcast.protocol.dht.reachability import (
    ASKED_MAX,
    BUSY_S,
    DIAL_BACK_S,
    DIAL_BACKS_MAX,
    RENEW_S,
    REPORT_S_MAX,
    REPORTS_MAX,
    RETRY_S,
    Reachability,
)
from pulsarcast.protocol.effects import DialBack, Effect, Send, SetTimer
from pulsarcast.protocol.inputs import PeerUp
from pulsarcast.protocol.messages import (
    Contact,
    DialAnswer,
    DialCode,
    DialMe,
    Message,
    ReachChanged,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, CREATED_US, peer

PEERS = [peer(f"peer {number}") for number in range(12)]
PLACES = [f"192.0.{number}.0/24" for number in range(12)]
"""A network of its own for each of them."""
ADDRESS = "/ip4/198.51.100.7/tcp/4001"
KEY = peer_key(PEERS[0])


class Stage:
    """A node's reachability between peers played by the test."""

    def __init__(self, reach: Reach = Reach.UNKNOWN) -> None:
        self.turn = Turn(ALICE, Random(1))
        self.turn.wall_us = CREATED_US
        self.own: list[Reach] = []
        """The node's own reach, as often as its owner hears of another one."""
        self.changed: list[Contact] = []
        self.it = Reachability(Context(self.turn, Parameters()), self)
        self.asked: dict[PeerId, int] = {}
        """The peers that have yet to answer, with the number of the question."""
        self.timer: SetTimer | None = None
        self.it.start(reach)
        self.effects()

    def reach(self) -> Reach:
        """What the node says of itself now."""
        return self.it.reach

    def own_reach_changed(self) -> None:
        self.own.append(self.it.reach)

    def reach_changed(self, contact: Contact) -> None:
        self.changed.append(contact)

    def effects(self) -> list[Effect]:
        """What was wanted since the last look."""
        effects, self.turn.effects = self.turn.effects, []
        for each in effects:
            match each:
                case Send(who, DialMe(request)):
                    self.asked[who] = request
                case SetTimer():
                    self.timer = each
        return effects

    def sent(self, kind: type[Message]) -> list[tuple[PeerId, Message]]:
        """The messages of a kind since the last look."""
        sent = [each for each in self.effects() if isinstance(each, Send)]
        return [(each.peer, each.message) for each in sent if isinstance(each.message, kind)]

    def up(
        self,
        number: int,
        *,
        place: str | None = None,
        dialled: bool = True,
        near: bool = False,
        relayed: bool = False,
        reach: Reach = Reach.PUBLIC,
    ) -> PeerId:
        """Connect a peer that the node dialled, or that dialled the node."""
        contact = Contact(PEERS[number], (f"/ip4/192.0.{number}.1/tcp/4001",))
        where = PLACES[number] if place is None else place
        self.it.up(PeerUp(contact, where, dialled, near, reach, relayed))
        return contact.peer

    def answer(self, number: int, code: DialCode, address: str = ADDRESS) -> None:
        """Let a peer that was asked answer."""
        self.effects()
        request = self.asked.pop(PEERS[number])
        at = address if code is DialCode.REACHED else ""
        self.it.receive(PEERS[number], DialAnswer(request, code, at))

    def ask_again(self) -> set[PeerId]:
        """Let the time come to ask; returns the peers that are asked."""
        self.effects()
        self.asked.clear()
        assert self.timer is not None
        self.turn.fired(self.timer.timer)
        self.effects()
        return set(self.asked)

    def report(self, number: int, code: DialCode, *, place: str | None = None) -> None:
        """Let a peer come up and answer, where the others have answered or gone."""
        self.up(number, place=place)
        self.effects()
        if PEERS[number] not in self.asked:
            for other in list(self.it.connected())[:-1]:
                self.it.lost(other)
            self.ask_again()
        self.answer(number, code)

    def found(self, *codes: DialCode) -> Reach:
        """Let peers at different places answer, one after the other."""
        for number, code in enumerate(codes):
            self.report(number, code)
        return self.it.reach


REACHED, NOT_REACHED, BUSY = DialCode.REACHED, DialCode.NOT_REACHED, DialCode.BUSY


# The node's own reach.


def test_a_node_that_a_peer_dials_back_is_public_at_the_address_that_the_peer_names() -> None:
    stage = Stage()
    stage.up(0)
    assert stage.reach() is Reach.UNKNOWN
    stage.answer(0, REACHED)
    assert stage.reach() is Reach.PUBLIC
    assert stage.it.outside == ADDRESS
    assert stage.own == [Reach.PUBLIC]


@pytest.mark.parametrize(("relayed", "found"), [(False, Reach.PUBLIC), (True, Reach.UNKNOWN)])
def test_a_direct_connection_that_a_peer_dialled_shows_that_the_node_is_public(
    relayed: bool, found: Reach
) -> None:
    stage = Stage()
    stage.up(0, dialled=False, relayed=relayed)
    assert stage.reach() is found


def test_a_node_that_no_peer_can_dial_back_is_private() -> None:
    stage = Stage()
    assert stage.found(NOT_REACHED) is Reach.PRIVATE
    assert stage.it.is_private
    assert stage.it.outside == ""


def test_only_the_peer_that_was_asked_can_answer_and_only_once() -> None:
    stage = Stage()
    who = stage.up(0)
    stage.up(1, near=True, dialled=False, relayed=True)
    stage.effects()
    request = stage.asked[who]
    stage.it.receive(who, DialAnswer(request + 1, REACHED, ADDRESS))
    stage.it.receive(PEERS[1], DialAnswer(request, REACHED, ADDRESS))
    assert stage.reach() is Reach.UNKNOWN
    stage.it.receive(who, DialAnswer(request, NOT_REACHED))
    assert stage.reach() is Reach.PRIVATE
    stage.it.receive(who, DialAnswer(request, REACHED, ADDRESS))
    assert stage.reach() is Reach.PRIVATE


@pytest.mark.parametrize("liar", range(REPORTS_MAX))
@pytest.mark.parametrize(
    ("truth", "lie", "found"),
    [(NOT_REACHED, REACHED, Reach.PRIVATE), (REACHED, NOT_REACHED, Reach.PUBLIC)],
)
def test_of_three_places_one_that_lies_changes_nothing(
    liar: int, truth: DialCode, lie: DialCode, found: Reach
) -> None:
    codes = [truth] * REPORTS_MAX
    codes[liar] = lie
    assert Stage().found(*codes) is found


def test_a_tie_changes_nothing() -> None:
    assert Stage().found(REACHED, NOT_REACHED) is Reach.PUBLIC
    assert Stage().found(NOT_REACHED, REACHED) is Reach.PRIVATE


def test_the_newest_three_reports_decide() -> None:
    stage = Stage()
    assert stage.found(REACHED, REACHED, NOT_REACHED, NOT_REACHED) is Reach.PRIVATE
    assert list(stage.it.reports) == PLACES[1:4]


def test_peers_at_one_place_have_one_report_between_them() -> None:
    stage = Stage()
    stage.found(NOT_REACHED, NOT_REACHED)
    for number in (2, 3, 4):
        stage.report(number, REACHED, place="203.0.113.0/24")
    assert stage.reach() is Reach.PRIVATE
    assert len(stage.it.reports) == 3


def test_reports_of_peers_nearby_count_only_while_there_is_none_from_afar() -> None:
    stage = Stage()
    stage.up(0, near=True)
    stage.answer(0, REACHED)
    assert stage.reach() is Reach.PUBLIC
    assert stage.it.outside == "", "an address in the node's own network is none outside"
    stage.up(1)
    stage.it.addresses_changed()
    stage.it.receive(stage.up(2, near=True, dialled=False), DialMe(1))
    assert list(stage.it.reports) == [PLACES[2]]
    stage.answer(1, NOT_REACHED)
    assert stage.reach() is Reach.PRIVATE
    assert list(stage.it.reports) == [PLACES[1]], "the report from nearby is void"
    stage.up(3, near=True, dialled=False)
    assert list(stage.it.reports) == [PLACES[1]]
    assert stage.reach() is Reach.PRIVATE


def test_old_reports_do_not_outvote_the_only_peer_that_is_left_to_ask() -> None:
    stage = Stage()
    stage.found(REACHED)
    for number in range(1, REPORTS_MAX):
        stage.up(number, dialled=False)
        stage.it.lost(PEERS[number])
    assert stage.ask_again() == set(), "they have dialled it"
    stage.turn.wall_us += round(0.5 * REPORT_S_MAX * 1e6)
    assert stage.ask_again() == {PEERS[0]}
    stage.answer(0, NOT_REACHED)
    assert stage.reach() is Reach.PUBLIC, "two others reached it a moment ago"
    stage.turn.wall_us += round(0.6 * REPORT_S_MAX * 1e6)
    stage.ask_again()
    stage.answer(0, NOT_REACHED)
    assert stage.reach() is Reach.PRIVATE


def test_a_busy_peer_says_nothing_about_the_nodes_reach() -> None:
    stage = Stage()
    assert stage.found(BUSY) is Reach.UNKNOWN
    assert stage.it.reports == {}


def test_a_node_asks_busy_peers_again_soon_but_not_before_all_have_answered() -> None:
    stage = Stage()
    for number in range(ASKED_MAX):
        stage.up(number)
    stage.effects()
    regular = stage.timer
    for number in range(ASKED_MAX):
        stage.effects()
        assert stage.timer is regular
        stage.answer(number, BUSY)
    stage.effects()
    assert stage.timer is not None
    assert stage.timer.delay_s < 2 * BUSY_S
    assert stage.ask_again() == set(PEERS[:ASKED_MAX])
    assert stage.timer.delay_s > 2 * BUSY_S


def test_a_node_asks_a_few_peers_at_different_places() -> None:
    stage = Stage()
    for number in range(4):
        stage.up(number, place="one place")
    for number in range(4, 9):
        stage.up(number)
    assert [who for who, _ in stage.sent(DialMe)] == PEERS[:ASKED_MAX], "as they come up"
    assert stage.ask_again() == {PEERS[0], PEERS[4], PEERS[5]}
    for number in range(4, 9):
        stage.it.lost(PEERS[number])
    assert stage.ask_again() == set(PEERS[:ASKED_MAX]), "where there is no choice"


def test_a_peer_that_is_lost_before_it_answers_leaves_its_turn_to_another() -> None:
    stage = Stage()
    for number in range(ASKED_MAX):
        stage.up(number)
    stage.it.lost(PEERS[0])
    stage.effects()
    stage.up(ASKED_MAX)
    assert stage.sent(DialMe) != []


def test_a_node_asks_only_peers_that_it_dialled_directly() -> None:
    stage = Stage()
    stage.up(0, dialled=False, relayed=True)
    stage.up(1, relayed=True)
    assert stage.ask_again() == set()
    stage.up(2)
    assert stage.ask_again() == {PEERS[2]}


def test_a_node_that_knows_its_reach_asks_less_often() -> None:
    stage = Stage()
    assert stage.timer is not None
    assert 0.75 * RETRY_S <= stage.timer.delay_s <= 1.25 * RETRY_S
    stage.found(NOT_REACHED)
    stage.ask_again()
    assert 0.75 * RENEW_S <= stage.timer.delay_s <= 1.25 * RENEW_S


def test_a_public_node_that_was_dialled_from_afar_meanwhile_does_not_ask() -> None:
    stage = Stage()
    stage.found(REACHED)
    assert stage.ask_again() == {PEERS[0]}
    stage.up(1, dialled=False, near=True)
    assert stage.ask_again() == {PEERS[0]}, "a peer nearby shows nothing"
    stage.up(2, dialled=False)
    assert stage.ask_again() == set()
    assert stage.ask_again() == {PEERS[0]}, "it shows it once"


def test_after_a_change_of_addresses_a_node_asks_at_once_and_asks_newly_dialled_peers() -> None:
    stage = Stage()
    stage.found(REACHED)
    stage.effects()
    stage.up(1)
    assert stage.sent(DialMe) == [], "it knows its reach"
    stage.it.addresses_changed()
    assert [who for who, _ in stage.sent(DialMe)] == PEERS[:2]
    assert stage.reach() is Reach.PUBLIC, "it holds until the next report"
    stage.up(2)
    assert [who for who, _ in stage.sent(DialMe)] == [PEERS[2]]
    stage.answer(2, NOT_REACHED)
    assert stage.reach() is Reach.PRIVATE, "earlier reports are void"


def test_after_a_change_of_addresses_earlier_connections_show_nothing() -> None:
    stage = Stage()
    stage.found(REACHED)
    before = stage.timer
    stage.up(1, dialled=False)
    stage.effects()
    stage.it.addresses_changed()
    assert [who for who, _ in stage.sent(DialMe)] == [PEERS[0]]
    assert before is not None
    stage.turn.fired(before.timer)
    assert stage.effects() == [], "it asks in one rhythm"


def test_an_address_is_known_while_most_reports_that_name_one_name_it() -> None:
    stage = Stage()
    stage.found(REACHED)
    stage.up(1, place=PLACES[0], dialled=False)
    assert stage.it.outside == ADDRESS, "a connection from there names none"
    stage.up(2)
    stage.effects()
    stage.it.addresses_changed()
    assert stage.it.outside == ""
    stage.answer(0, REACHED)
    stage.answer(2, REACHED, "/ip4/198.51.100.8/tcp/4001")
    assert stage.it.outside == ""


def test_a_reach_that_the_driver_knows_is_not_looked_for() -> None:
    stage = Stage(Reach.PRIVATE)
    assert stage.own == [Reach.PRIVATE]
    stage.up(0)
    stage.up(1, dialled=False)
    stage.it.addresses_changed()
    assert stage.sent(DialMe) == []
    assert stage.timer is None
    assert stage.reach() is Reach.PRIVATE


def test_a_private_node_is_relayed_while_a_relay_holds_a_place_for_it() -> None:
    stage = Stage()
    stage.found(NOT_REACHED)
    stage.it.relayed(True)
    assert stage.reach() is Reach.RELAYED
    assert stage.it.is_private
    stage.it.relayed(False)
    assert stage.own == [Reach.PRIVATE, Reach.RELAYED, Reach.PRIVATE]


def test_a_public_node_stays_public_whatever_relays_do() -> None:
    stage = Stage()
    stage.found(REACHED)
    stage.it.relayed(True)
    assert stage.reach() is Reach.PUBLIC
    stage.it.addresses_changed()
    stage.effects()
    stage.answer(0, NOT_REACHED)
    assert stage.reach() is Reach.RELAYED


def test_every_change_is_told_to_all_connected_peers_and_nothing_else_is() -> None:
    stage = Stage()
    gone = stage.up(2)
    stage.up(1, reach=Reach.PRIVATE, dialled=False, relayed=True)
    stage.it.lost(gone)
    stage.found(NOT_REACHED)
    others = [PEERS[1], PEERS[0]]
    assert stage.sent(ReachChanged) == [(who, ReachChanged(Reach.PRIVATE)) for who in others]
    stage.it.relayed(False)
    assert stage.sent(ReachChanged) == []
    for _ in range(2):
        # Another relay: the addresses are others.
        stage.it.relayed(True)
        assert stage.sent(ReachChanged) == [(who, ReachChanged(Reach.RELAYED)) for who in others]
    stage.it.relayed(False)
    assert stage.sent(ReachChanged) == [(who, ReachChanged(Reach.PRIVATE)) for who in others]


# Dialling others back.


def served(stage: Stage, number: int, request: int = 7) -> bool:
    """Whether the node dials a peer back that asks; if not, it has to say that it is busy."""
    stage.effects()
    stage.it.receive(PEERS[number], DialMe(request))
    effects = stage.effects()
    busy = Send(PEERS[number], DialAnswer(request, DialCode.BUSY))
    assert effects in ([DialBack(PEERS[number])], [busy])
    return effects != [busy]


@pytest.mark.parametrize(("address", "code"), [(ADDRESS, REACHED), ("", NOT_REACHED)])
def test_a_peer_that_asks_is_dialled_back_and_told_what_came_of_it(
    address: str, code: DialCode
) -> None:
    stage = Stage(Reach.PUBLIC)
    stage.up(0, dialled=False)
    assert served(stage, 0)
    stage.it.dialled_back(PEERS[0], address)
    assert stage.sent(DialAnswer) == [(PEERS[0], DialAnswer(7, code, address))]
    stage.it.dialled_back(PEERS[0], address)
    assert stage.sent(DialAnswer) == [], "it asked once"


def test_a_peer_that_is_not_connected_is_not_dialled_back() -> None:
    stage = Stage(Reach.PUBLIC)
    stage.it.receive(PEERS[0], DialMe(1))
    assert stage.effects() == []


def test_a_peer_behind_a_relay_is_not_dialled_back() -> None:
    stage = Stage(Reach.PUBLIC)
    stage.up(0, dialled=False, relayed=True)
    assert not served(stage, 0), "the connection comes from the relay's host"


def test_a_node_dials_a_few_peers_back_at_a_time() -> None:
    stage = Stage(Reach.PUBLIC)
    for number in range(DIAL_BACKS_MAX + 1):
        stage.up(number)
        assert served(stage, number) == (number < DIAL_BACKS_MAX)
    stage.it.dialled_back(PEERS[0], "")
    assert served(stage, DIAL_BACKS_MAX)


def test_a_node_dials_one_peer_of_a_place_back_at_a_time() -> None:
    stage = Stage(Reach.PUBLIC)
    stage.up(0)
    stage.up(1, place=PLACES[0])
    assert served(stage, 0)
    assert not served(stage, 1)
    stage.it.dialled_back(PEERS[0], ADDRESS)
    assert served(stage, 1)


def test_a_peer_is_dialled_back_once_in_a_while() -> None:
    stage = Stage(Reach.PUBLIC)
    stage.up(0)
    assert served(stage, 0)
    stage.it.dialled_back(PEERS[0], ADDRESS)
    stage.turn.now = DIAL_BACK_S - 0.1
    assert not served(stage, 0)
    stage.turn.now = DIAL_BACK_S
    assert served(stage, 0)


def test_a_peer_is_dialled_back_once_at_a_time() -> None:
    """Peers without a place, as in simulations, do not stand in each other's way."""
    stage = Stage(Reach.PUBLIC)
    for number in (0, 1):
        stage.up(number, place="")
        assert served(stage, number)
    stage.turn.now = DIAL_BACK_S
    assert not served(stage, 0)


# Peers.


@pytest.mark.parametrize("reach", Reach)
@pytest.mark.parametrize("dialled", [False, True])
def test_a_connected_peer_is_listed_or_dialable_by_what_it_says(
    reach: Reach, dialled: bool
) -> None:
    stage = Stage(Reach.PUBLIC)
    who = stage.up(0, reach=reach, dialled=dialled)
    listed = reach is Reach.PUBLIC or (reach is Reach.UNKNOWN and dialled)
    assert stage.it.of(who) is reach
    assert stage.it.is_listed(who) == stage.it.is_public(who) == listed
    assert stage.it.is_dialable(who) == (listed or reach is Reach.RELAYED)
    stage.it.lost(who)
    assert stage.it.is_listed(who), "a peer that is not connected is one that others list"
    assert stage.it.is_dialable(who)
    assert stage.it.of(who) is Reach.UNKNOWN


def test_a_peer_that_was_dialled_through_a_relay_is_not_listed_until_it_says_public() -> None:
    stage = Stage(Reach.PUBLIC)
    who = stage.up(0, reach=Reach.UNKNOWN, relayed=True)
    assert not stage.it.is_listed(who)


def test_the_owner_hears_of_a_peer_whose_reach_is_another_one() -> None:
    stage = Stage(Reach.PUBLIC)
    who = stage.up(0)
    for reach in (Reach.PRIVATE, Reach.PRIVATE, Reach.RELAYED):
        stage.it.receive(who, ReachChanged(reach, (ADDRESS,)))
    stage.it.receive(PEERS[1], ReachChanged(Reach.PRIVATE))
    assert stage.changed == 2 * [Contact(who, (ADDRESS,))]
    assert stage.it.of(who) is Reach.RELAYED


@pytest.mark.parametrize("own", Reach)
def test_public_peers_rank_before_others_and_closer_ones_before_farther_ones(own: Reach) -> None:
    stage = Stage(own)
    me = ALICE.peer_id
    close, near, far, farther = sorted(PEERS[:4], key=lambda who: peer_key(who) ^ KEY)
    for who, reach in zip(
        (close, near, far, farther),
        (Reach.RELAYED, Reach.PUBLIC, Reach.PRIVATE, Reach.PUBLIC),
        strict=True,
    ):
        stage.up(PEERS.index(who), reach=reach)

    def key(who: PeerId) -> tuple[bool, int]:
        return who not in (near, farther, *([me] if own is Reach.PUBLIC else [])), peer_key(
            who
        ) ^ KEY

    order = sorted((close, near, far, farther, me), key=key)
    for index, who in enumerate(order):
        for other in order[index + 1 :]:
            assert stage.it.ranks_before(who, other, KEY)
            assert not stage.it.ranks_before(other, who, KEY)


def test_the_connected_peers_that_are_not_listed_are_in_reserve_the_closest_first() -> None:
    stage = Stage(Reach.PUBLIC)
    for number in range(6):
        stage.up(number, reach=Reach.PRIVATE if number % 2 else Reach.PUBLIC)
    order = sorted(PEERS[1:6:2], key=lambda who: peer_key(who) ^ KEY)
    assert stage.it.in_reserve(KEY) == order
    stage.it.lost(order[0])
    stage.it.receive(order[1], ReachChanged(Reach.PUBLIC))
    assert stage.it.in_reserve(KEY) == order[2:]


def test_of_peers_behind_relays_at_one_place_one_counts() -> None:
    stage = Stage(Reach.PUBLIC)
    direct = [stage.up(number, place="home", reach=Reach.PRIVATE) for number in (0, 1)]
    behind = [
        stage.up(number, place=place, reach=Reach.RELAYED, relayed=True)
        for number, place in ((2, "a relay"), (3, "a relay"), (4, "another"))
    ]
    public, unconnected = stage.up(5), PEERS[6]
    chosen = stage.it.one_per_place([*direct, *behind, public, unconnected])
    assert chosen == [*direct, behind[0], behind[2]]


def test_a_relayed_peer_is_found_by_its_key_while_it_is_connected_and_relayed() -> None:
    stage = Stage(Reach.PUBLIC)
    who = stage.up(0, reach=Reach.RELAYED)
    key = peer_key(who)
    assert stage.it.relayed_at(key) == Contact(who, ("/ip4/192.0.0.1/tcp/4001",))
    stage.it.receive(who, ReachChanged(Reach.RELAYED, (ADDRESS,)))
    assert stage.it.relayed_at(key) == Contact(who, (ADDRESS,))
    stage.it.receive(who, ReachChanged(Reach.PUBLIC))
    assert stage.it.relayed_at(key) is None
    stage.it.receive(who, ReachChanged(Reach.RELAYED))
    stage.it.lost(who)
    assert stage.it.relayed_at(key) is None
    stage.up(0, reach=Reach.RELAYED)
    stage.up(0, reach=Reach.PRIVATE)
    assert stage.it.relayed_at(key) is None, "it came back as another"


# Bounds.


def test_the_peers_that_are_remembered_are_bounded_and_public_ones_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reachability, "CONNECTED_MAX", 3)
    stage = Stage(Reach.PUBLIC)
    reaches = (Reach.RELAYED, Reach.PUBLIC, Reach.PRIVATE, Reach.PUBLIC, Reach.PRIVATE)
    for number, reach in enumerate(reaches):
        stage.up(number, reach=reach)
    assert list(stage.it.connected()) == [PEERS[0], PEERS[2], PEERS[4]]
    assert stage.it.footprint()["reach_peers"] == 3
    stage.up(5, reach=Reach.PRIVATE)
    assert list(stage.it.connected()) == [PEERS[2], PEERS[4], PEERS[5]]
    assert stage.it.relayed_at(peer_key(PEERS[0])) is None
    assert not stage.it.is_connected(PEERS[0])


def test_the_peers_remembered_to_have_been_dialled_back_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reachability, "SERVED_MAX", 2)
    stage = Stage(Reach.PUBLIC)
    for number in (0, 1, 0, 2):
        stage.up(number)
        stage.turn.now += DIAL_BACK_S / 2
        assert served(stage, number)
        stage.it.dialled_back(PEERS[number], "")
    assert stage.it.footprint()["reach_calls"] == 2
    assert not served(stage, 0)
    assert served(stage, 1), "the one of longest ago is forgotten"
