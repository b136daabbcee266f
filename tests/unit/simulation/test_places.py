"""Who can dial whom: NATs, firewalls, relays, and addresses that change (docs/spec/reach.md)."""

from pulsarcast.model.reach import Reach
from pulsarcast.protocol.effects import DialBack, Send
from pulsarcast.protocol.inputs import (
    AddressesChanged,
    DialledBack,
    Input,
    MessageReceived,
    PeerUp,
    Relayed,
    Start,
)
from pulsarcast.protocol.messages import ReachChanged
from pulsarcast.simulation.places import Place
from tests.unit.simulation.puppets import Strings, word

PUBLIC = Place("7.0.1")
ALSO_PUBLIC = Place("7.0.2")
HOME = Place("7.0.3", 1, translated=True)
OTHER_HOME = Place("7.0.3", 2, translated=True)
FIREWALLED = Place("7.0.4", 3)


def last(strings: Strings, index: int, kind: type[Input]) -> Input:
    return next(given for _, given in reversed(strings.heard[index]) if isinstance(given, kind))


def up(strings: Strings, index: int) -> PeerUp:
    given = last(strings, index, PeerUp)
    assert isinstance(given, PeerUp)
    return given


# Who can dial whom.


def test_a_dial_to_a_node_behind_a_nat_is_dropped() -> None:
    for private in (HOME, FIREWALLED):
        strings = Strings(2, places=(PUBLIC, private))
        strings.say(0, 1, 7)
        strings.world.run(10.0)
        assert strings.told(0) == [(5.0, "-1")]
        assert strings.told(1) == []


def test_a_node_behind_a_nat_dials_others_and_both_speak() -> None:
    strings = Strings(2, places=(PUBLIC, HOME))
    strings.say(1, 0, 7)
    strings.world.run(1.0)
    strings.say(0, 1, 8)
    strings.world.run(2.0)
    assert strings.words(0) == [7]
    assert strings.words(1) == [8]


def test_nodes_behind_one_nat_dial_each_other_and_are_near() -> None:
    strings = Strings(2, places=(HOME, HOME))
    strings.say(0, 1, 7)
    strings.world.run(1.0)
    assert strings.words(1) == [7]
    assert up(strings, 0).near
    assert up(strings, 1).near
    assert up(strings, 1).place == "192.168.1.0/24"


def test_two_nats_of_one_prefix_keep_their_nodes_apart() -> None:
    strings = Strings(2, places=(HOME, OTHER_HOME))
    strings.say(0, 1, 7)
    strings.world.run(10.0)
    assert strings.told(0) == [(5.0, "-1")]
    assert not HOME.is_near(OTHER_HOME)


def test_nodes_without_places_are_public_and_have_no_addresses() -> None:
    strings = Strings(2)
    strings.say(0, 1, 7)
    strings.world.run(1.0)
    start = last(strings, 0, Start)
    assert isinstance(start, Start)
    assert start.reach is Reach.PUBLIC
    assert up(strings, 0) == PeerUp(up(strings, 0).contact, reach=Reach.PUBLIC)
    assert up(strings, 0).contact.addresses == ()


def test_an_end_is_told_the_prefix_the_address_and_what_the_other_says_of_its_reach() -> None:
    strings = Strings(2, places=(PUBLIC, HOME))
    strings.puppet(0).reach = Reach.PUBLIC
    strings.say(1, 0, 7)
    strings.world.run(1.0)
    dialled, dialler = up(strings, 1), up(strings, 0)
    assert dialled.place == "7.0.1.0/24"
    assert dialled.contact.addresses == ("/ip4/7.0.1.1/tcp/4001",)
    assert (dialled.reached, dialled.near, dialled.reach) == (True, False, Reach.PUBLIC)
    assert dialler.place == "7.0.3.0/24"
    assert (dialler.reached, dialler.near, dialler.reach) == (False, False, Reach.UNKNOWN)


def test_what_waits_for_a_dropped_dial_goes_over_the_connection_that_comes_in() -> None:
    strings = Strings(2, places=(PUBLIC, HOME))
    strings.say(0, 1, 7)
    strings.world.run(2.0)
    strings.say(1, 0, 8)
    strings.world.run(20.0)
    assert [told for _, told in strings.told(0)] == ["+1", "1:8"]
    assert [told for _, told in strings.told(1)] == ["+0", "0:7"]


def test_two_that_dial_each_other_at_once_get_one_connection_though_one_dial_is_dropped() -> None:
    for first, second in ((0, 1), (1, 0)):
        strings = Strings(2, places=(PUBLIC, HOME))
        strings.say(first, second, 7)
        strings.say(second, first, 8)
        strings.world.run(20.0)
        assert [told for _, told in strings.told(second)] == [f"+{first}", f"{first}:7"]
        assert [told for _, told in strings.told(first)] == [f"+{second}", f"{second}:8"]


def test_a_reach_that_changes_after_the_hello_has_left_is_told_once_the_connection_is_up() -> None:
    strings = Strings(2, places=(PUBLIC, HOME))
    strings.say(1, 0, 7)
    strings.world.run(0.15)
    strings.puppet(1).reach = Reach.PRIVATE
    strings.answer = None
    strings.world.run(1.0)
    said = [given.message for _, given in strings.heard[0] if isinstance(given, MessageReceived)]
    assert said == [word(7), ReachChanged(Reach.PRIVATE)]
    assert up(strings, 0).reach is Reach.UNKNOWN


# Dialling back.


def dialled_back(strings: Strings, index: int) -> DialledBack:
    given = last(strings, index, DialledBack)
    assert isinstance(given, DialledBack)
    return given


def test_a_public_node_is_dialled_back_at_the_address_that_it_is_seen_at() -> None:
    strings = Strings(2, places=(PUBLIC, ALSO_PUBLIC))
    strings.connect(1, 0)
    strings.act(0, DialBack(strings.world.peer(1)))
    strings.world.run(2.0)
    assert strings.told(0) == [(1.2, "DialledBack")]
    assert dialled_back(strings, 0).address == "/ip4/7.0.2.2/tcp/4002"
    assert strings.told(1) == []


def test_a_node_behind_a_nat_or_a_firewall_is_dialled_back_in_vain() -> None:
    for private in (HOME, FIREWALLED):
        strings = Strings(2, places=(PUBLIC, private))
        strings.connect(1, 0)
        strings.act(0, DialBack(strings.world.peer(1)))
        strings.world.run(10.0)
        assert strings.told(0) == [(6.0, "DialledBack")]
        assert not dialled_back(strings, 0).address


def test_a_peer_that_is_not_connected_is_not_dialled_back() -> None:
    strings = Strings(2, places=(PUBLIC, ALSO_PUBLIC))
    strings.act(0, DialBack(strings.world.peer(1)))
    strings.world.run(10.0)
    assert not dialled_back(strings, 0).address


# Changes.


def test_a_new_address_ends_connections_late_and_the_node_knows_of_it() -> None:
    strings = Strings(2, places=(PUBLIC, ALSO_PUBLIC))
    strings.connect(1, 0)
    strings.world.move(1, Place("7.0.9"))
    strings.say(1, 0, 7)
    strings.world.run(20.0)
    assert strings.told(1) == [(1.0, "AddressesChanged"), (16.0, "-0")]
    assert strings.told(0) == [(16.0, "-1")]
    strings.say(1, 0, 8)
    strings.world.run(21.0)
    assert strings.words(0) == [8]
    assert up(strings, 0).place == "7.0.9.0/24"


def test_a_firewall_in_the_middle_is_silent_and_leaves_connections() -> None:
    strings = Strings(3, places=(PUBLIC, ALSO_PUBLIC, PUBLIC))
    strings.connect(1, 0)
    strings.world.move(1, Place(ALSO_PUBLIC.prefix, 5))
    strings.say(0, 1, 7)
    strings.say(2, 1, 8)
    strings.world.run(10.0)
    assert strings.told(1) == [(1.1, "0:7")]
    assert [told for _, told in strings.told(2)] == ["-1"]
    strings.world.move(1, ALSO_PUBLIC)
    strings.say(2, 1, 9)
    strings.world.run(11.0)
    assert strings.words(1) == [7, 9]
    assert not any(isinstance(given, AddressesChanged) for _, given in strings.heard[1])


# Relays.


def relayed_world(**options: object) -> Strings:
    """A relay (0), a node behind a NAT that is connected to it (1), and another one (2)."""
    strings = Strings(3, places=(PUBLIC, HOME, OTHER_HOME), relays=True, **options)  # type: ignore[arg-type]
    strings.puppet(0).reach = Reach.PUBLIC
    strings.puppet(1).reach = Reach.PRIVATE
    strings.say(1, 0, 0)
    strings.world.run(3.0)
    assert last(strings, 1, Relayed) == Relayed(True)
    for heard in strings.heard.values():
        heard.clear()
    return strings


def test_a_node_that_knows_that_it_is_private_is_dialled_through_its_relay() -> None:
    strings = relayed_world()
    strings.say(2, 1, 7)
    strings.world.run(4.0)
    assert strings.told(2) == [(3.4, "+1")]
    assert strings.told(1) == [(3.2, "+2"), (3.6, "2:7")]
    assert up(strings, 1).relayed
    assert not up(strings, 1).near
    assert up(strings, 1).place == "7.0.1.0/24"
    assert strings.world.relayed_dials == 1


def test_without_relays_nobody_is_dialled_through_one() -> None:
    strings = Strings(3, places=(PUBLIC, HOME, OTHER_HOME))
    strings.puppet(0).reach = Reach.PUBLIC
    strings.puppet(1).reach = Reach.PRIVATE
    strings.connect(1, 0)
    strings.world.run(10.0)
    strings.say(2, 1, 7)
    strings.world.run(20.0)
    assert [told for _, told in strings.told(2)] == ["-1"]


def test_a_relayed_connection_ends_with_its_relay() -> None:
    strings = relayed_world()
    strings.say(2, 1, 7)
    strings.world.run(4.0)
    strings.world.kill(0)
    strings.world.run(5.0)
    assert "-1" in [told for _, told in strings.told(2)]
    assert "-2" in [told for _, told in strings.told(1)]
    assert last(strings, 1, Relayed) == Relayed(False)
    strings.say(2, 1, 8)
    strings.world.run(20.0)
    assert strings.words(1) == [7]


def test_a_paused_relay_passes_nothing_on_and_the_ends_notice_late() -> None:
    strings = relayed_world()
    strings.say(2, 1, 7)
    strings.world.run(4.0)
    strings.world.pause(0)
    strings.say(2, 1, 8)
    strings.world.run(30.0)
    assert strings.words(1) == [7]
    assert strings.told(2)[-1] == (19.0, "-1")


def test_a_relayed_connection_is_cut_where_the_relay_is_cut_off() -> None:
    strings = relayed_world()
    strings.say(2, 1, 7)
    strings.world.run(4.0)
    strings.world.cut([{0}])
    strings.say(2, 1, 8)
    strings.world.run(30.0)
    assert strings.words(1) == [7]
    assert "-1" in [told for _, told in strings.told(2)]


def test_a_node_that_is_public_again_gives_its_reservations_up() -> None:
    strings = relayed_world()
    strings.puppet(1).reach = Reach.PUBLIC
    strings.world.run(10.0)
    assert last(strings, 1, Relayed) == Relayed(False)


def test_a_relayed_node_is_not_dialled_back() -> None:
    strings = relayed_world()
    strings.say(2, 1, 7)
    strings.world.run(4.0)
    strings.act(1, DialBack(strings.world.peer(2)))
    strings.world.run(20.0)
    assert not dialled_back(strings, 1).address


def test_worlds_with_places_are_the_same_for_the_same_seed() -> None:
    def told() -> list[object]:
        strings = relayed_world(seed=3)
        strings.act(2, Send(strings.world.peer(1), word(1)))
        strings.world.run(30.0)
        return [strings.told(index) for index in range(3)]

    assert told() == told()
