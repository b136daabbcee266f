from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import asynccontextmanager

import pytest
import trio
import trio.lowlevel
from msgspec.structs import replace

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.network import neighbours as neighbours_module
from pulsarcast.network.addresses import AddressBook
from pulsarcast.network.host import Host
from pulsarcast.network.link import MOVING_S, Link
from pulsarcast.network.neighbours import Neighbours
from pulsarcast.network.resources import CHILDREN_BYTES_MAX, TURN_S, Why
from pulsarcast.protocol.messages import Contact, EventMessage, Peers
from pulsarcast.wire.codec import number_of
from pulsarcast.wire.framing import write_frames
from pulsarcast.wire.hello import Hello, encode_hello
from pulsarcast.wire.lanes import FULL_BYTES, QUEUE_BYTES_MAX
from tests.unit.network.hosts import RANGE


class Ear:
    """A driver that only listens."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.moved = False
        self.story: list[str] = []
        self.reasons: list[str] = []
        self.looked_for: list[PeerId] = []
        self.friends: list[PeerId] = []
        self.children: list[PeerId] = []
        self.takes: Callable[[list[bytes]], None] = lambda _: None
        self.is_news = False

    def received(self, peer: PeerId, frames: list[bytes]) -> bool:
        self.heard += frames
        self.takes(frames)
        return self.is_news

    def unreachable(self, peer: PeerId, reason: str) -> None:
        self.reasons.append(reason)

    def up(self, contact: Contact, link: Link, reach: Reach, said: Hello) -> None:
        self.story.append("up")

    def relied_on(self) -> Container[PeerId]:
        return self.friends

    def served(self) -> Container[PeerId]:
        return self.children

    def is_near(self, link: Link) -> bool:
        return False

    def lost(self, peer: PeerId) -> None:
        self.story.append("lost")

    def moving(self, peer: PeerId) -> None:
        self.moved = True

    def filled(self, peer: PeerId) -> None:
        self.story.append("full")

    def freed(self, peer: PeerId) -> None:
        self.story.append("free")

    def wanted(self, peer: PeerId) -> None:
        self.looked_for.append(peer)

    def blamed(self, peer: PeerId, error: RemoteError) -> None:
        self.story.append(f"blamed: {error}")

    def met_double(self, address: str) -> None:
        self.story.append("met a double")

    def gather(self) -> None:
        self.neighbours.flush()

    neighbours: Neighbours


class Someone:
    """A peer with ears and a mouth."""

    def __init__(self, seed: int, instance: bytes, network: str, idle_s: float) -> None:
        identity = Identity.from_seed(bytes([seed]) * 32)
        self.peer = identity.peer_id
        self.host = Host(identity)
        self.book = AddressBook()
        self.ear = Ear()
        self.hello = Hello(network, (2,), instance=instance, reach=Reach.PUBLIC)
        self.neighbours = Neighbours(
            self.peer, self.host, self.book, lambda: self.hello, self.ear, idle_s=idle_s
        )
        self.ear.neighbours = self.neighbours

    def say(self, to: Someone, *words: bytes) -> None:
        for word in words:
            self.neighbours.send(to.peer, write_frames([word]))
        self.neighbours.flush()

    def knows(self, other: Someone) -> None:
        self.book.heard(Contact(other.peer, other.hello.addresses))


@asynccontextmanager
async def someone(
    seed: int, instance: bytes = b"1", network: str = "main", idle_s: float = 100.0
) -> AsyncIterator[Someone]:
    me = Someone(seed, instance, network, idle_s)
    addresses = await me.host.listen("/ip4/127.0.0.1/tcp/0")
    me.hello = replace(me.hello, addresses=addresses)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(me.neighbours.run)
        await me.neighbours.ready.wait()
        try:
            yield me
        finally:
            nursery.cancel_scope.cancel()


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not holds():
            await trio.sleep(0.01)


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(40):
            await scene()

    trio.run(bounded)


def test_what_is_said_while_dialling_arrives_in_order_and_both_are_up() -> None:
    async def scene() -> None:
        async with someone(1) as one, someone(2) as two:
            one.knows(two)
            one.say(two, b"a", b"b")
            one.say(two, b"c")
            await until(lambda: two.ear.heard == [b"a", b"b", b"c"])
            two.say(one, b"d")
            await until(lambda: one.ear.heard == [b"d"])
            assert one.ear.story == two.ear.story == ["up"]
            assert one.book.of(two.peer) == two.hello.addresses

    play(scene)


@pytest.mark.parametrize("rounds", range(5))
def test_two_who_dial_each_other_at_once_come_to_one_connection(rounds: int) -> None:
    async def scene() -> None:
        async with someone(1) as one, someone(2) as two:
            one.knows(two)
            two.knows(one)
            words = [b"%d" % number for number in range(50)]
            one.say(two, words[0])
            two.say(one, words[0])
            for word in words[1:]:
                one.say(two, word)
                two.say(one, word)
                await trio.sleep(0.001)
            await until(lambda: one.ear.heard == words and two.ear.heard == words)
            assert one.ear.story == two.ear.story == ["up"]
            await until(lambda: one.host.connection_count == two.host.connection_count == 1)

    play(scene)


def test_a_peer_that_lives_again_is_lost_and_then_up() -> None:
    async def scene() -> None:
        async with someone(1) as one, someone(2) as two:
            two.knows(one)
            two.say(one, b"a")
            await until(lambda: one.ear.heard == [b"a"])
            # Its old life is not over yet for us.
            async with someone(2, instance=b"2") as again:
                again.knows(one)
                again.say(one, b"b")
                await until(lambda: one.ear.heard == [b"a", b"b"])
                assert one.ear.story == ["up", "lost", "up"]

    play(scene)


def test_a_peer_that_cannot_be_dialled_is_lost_and_left_alone_for_a_while() -> None:
    async def scene() -> None:
        async with someone(1) as one:
            async with someone(2) as two:
                gone = two
            one.knows(gone)
            one.say(gone, b"a")
            await until(lambda: one.ear.story == ["lost"])
            one.say(gone, b"b")
            assert one.ear.story == ["lost", "lost"]
            assert not one.neighbours.connected()

    play(scene)


def test_peers_of_different_networks_part() -> None:
    async def scene() -> None:
        async with someone(1) as one, someone(2, network="other") as two:
            one.knows(two)
            one.say(two, b"a")
            await until(lambda: bool(one.ear.story and two.ear.story))
            assert one.ear.story[-1] == "lost"
            assert two.ear.story == ["blamed: of another network: 'main'"]
            assert not two.ear.heard

    play(scene)


def test_idle_connections_are_closed_without_a_word_to_the_core() -> None:
    async def scene() -> None:
        async with someone(1, idle_s=6.0) as one, someone(2, idle_s=100.0) as two:
            one.knows(two)
            one.say(two, b"a")
            await until(lambda: two.ear.heard == [b"a"])
            with trio.fail_after(12):
                while one.neighbours.connected() or two.neighbours.connected():
                    await trio.sleep(0.05)
            assert one.ear.story == two.ear.story == ["up"]
            two.say(one, b"b")
            await until(lambda: one.ear.heard == [b"b"])
            assert one.ear.story == two.ear.story == ["up", "up"]

    play(scene)


@pytest.mark.parametrize("private", ["who dialled", "who was dialled"])
def test_idle_connections_to_peers_that_nobody_can_dial_are_kept(private: str) -> None:
    async def scene() -> None:
        async with someone(1, idle_s=0.4) as one, someone(2, idle_s=0.4) as two:
            hidden = one if private == "who dialled" else two
            hidden.hello = replace(hidden.hello, reach=Reach.PRIVATE)
            one.knows(two)
            one.say(two, b"a")
            await until(lambda: two.ear.heard == [b"a"])
            await trio.sleep(1.5)
            assert one.neighbours.connected() == [two.peer]
            two.say(one, b"b")
            await until(lambda: one.ear.heard == [b"b"])
            assert one.ear.story == two.ear.story == ["up"]

    play(scene)


def test_kept_connections_are_bounded_and_the_side_that_cannot_dial_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(neighbours_module, "KEPT_PRIVATE_MAX", 0)
    monkeypatch.setattr(neighbours_module, "RECENT_S", 0.0)

    async def scene() -> None:
        async with someone(1, idle_s=0.4) as one, someone(2, idle_s=100.0) as two:
            one.hello = replace(one.hello, reach=Reach.PRIVATE)
            one.knows(two)
            one.say(two, b"a")
            await until(lambda: two.ear.heard == [b"a"])
            await until(lambda: not one.neighbours.connected() and not two.neighbours.connected())
            assert one.ear.story == ["up"], "it can dial again"
            assert two.ear.story == ["up", "lost"], "and this one cannot"

    play(scene)


def test_a_peer_that_nobody_can_dial_is_given_up_at_once() -> None:
    async def scene() -> None:
        async with someone(1) as one, someone(2) as two:
            one.hello = replace(one.hello, reach=Reach.PRIVATE)
            one.knows(two)
            one.say(two, b"a")
            await until(lambda: two.ear.heard == [b"a"])
            two.neighbours.close(one.peer)
            await until(lambda: not one.neighbours.connected())
            two.say(one, b"b")
            assert two.ear.story == ["up", "lost"]
            assert not two.ear.looked_for
            told = two.book.fill(Peers(1, (Contact(one.peer, one.hello.addresses),)))
            assert isinstance(told, Peers)
            assert told.contacts == (Contact(one.peer, ()),), "no other peer is sent there"

    play(scene)


def test_a_change_of_reach_opens_the_address_book_again() -> None:
    async def scene() -> None:
        async with someone(1) as one, someone(2) as two:
            one.hello = replace(one.hello, reach=Reach.PRIVATE)
            one.knows(two)
            one.say(two, b"a")
            await until(lambda: two.ear.heard == [b"a"])
            assert not two.book.of(one.peer)
            two.neighbours.renewed(one.peer, Reach.PUBLIC, one.hello.addresses)
            assert two.book.of(one.peer) == one.hello.addresses
            circuit = f"{one.hello.addresses[0]}/p2p/RELAY/p2p-circuit"
            two.neighbours.renewed(one.peer, Reach.RELAYED, (*one.hello.addresses, circuit))
            assert two.book.of(one.peer) == (circuit,)

    play(scene)


def test_somebody_with_our_key_is_noticed() -> None:
    async def scene() -> None:
        async with someone(1) as one, someone(1, instance=b"2") as double:
            # A third party would tell of an address of "ours".
            link = await one.host.dial(double.peer, double.hello.addresses)
            link.send(write_frames([encode_hello(one.hello)]))
            link.flush()
            await until(lambda: double.ear.story == ["met a double"])
            link.close()

    play(scene)


def test_a_peer_that_does_not_read_is_dropped_before_memory_is_full() -> None:
    async def scene() -> None:
        async with someone(1) as one, someone(2) as two:
            one.ear.friends = [two.peer]
            link = await two.host.dial(one.peer, one.hello.addresses)
            link.send(write_frames([encode_hello(two.hello)]))
            link.flush()
            await until(lambda: one.ear.story == ["up"])
            # Nobody runs the link: nothing is read.
            frame = bytes(100_000)
            said = 0
            while one.ear.story[-1] != "lost":
                one.say(two, frame)
                said += len(frame)
                if one.ear.story[-1] == "full":
                    assert said > FULL_BYTES
            assert one.ear.story == ["up", "full", "lost"]
            assert QUEUE_BYTES_MAX < said < 2 * QUEUE_BYTES_MAX
            assert one.host.connection_count == 0
            link.close()

    play(scene)


def test_a_stranger_that_does_not_read_is_dropped_where_all_together_hold_too_much() -> None:
    """A peer that the node relies on is not, and neither is the one that holds less."""

    async def scene() -> None:
        async with someone(1) as one, someone(2) as two, someone(3) as three, someone(4) as four:
            one.ear.friends = [two.peer]
            links = []
            for other in (two, three, four):
                link = await other.host.dial(one.peer, one.hello.addresses)
                link.send(write_frames([encode_hello(other.hello)]))
                link.flush()
                links.append(link)
            await until(lambda: one.ear.story == ["up"] * 3)
            frame = bytes(1_000_000)
            for _ in range(20):
                one.say(two, frame)
            for _ in range(3):
                one.say(three, frame)
            while one.neighbours.is_connected(four.peer):
                one.say(four, frame)
                await trio.lowlevel.checkpoint()
            assert one.host.resources.cut_off == {Why.BYTES: 1}
            assert set(one.neighbours.connected()) == {two.peer, three.peer}
            for link in links:
                link.close()

    play(scene)


def test_children_lose_what_they_ask_for_and_not_what_the_node_sends_them() -> None:
    """Any stranger can become one; a slow honest one is sent events as credit allows."""
    event = bytes([number_of(EventMessage) << 3 | 2])

    async def scene() -> None:
        async with someone(1) as one, someone(2) as two, someone(3) as three, someone(4) as four:
            one.ear.children = [two.peer, three.peer, four.peer]
            links = []
            for other in (two, three, four):
                link = await other.host.dial(one.peer, one.hello.addresses)
                link.send(write_frames([encode_hello(other.hello)]))
                link.flush()
                links.append(link)
            await until(lambda: one.ear.story == ["up"] * 3)
            for _ in range(20):
                send(one, two, event + bytes(1_000_000))
                send(one, three, event + bytes(1_000_000))
            for _ in range(3):
                send(one, three, RANGE + bytes(1_000_000))
            assert not one.host.resources.cut_off
            for _ in range(CHILDREN_BYTES_MAX // 1_000_000 - 2):
                assert not one.host.resources.cut_off
                send(one, four, RANGE + bytes(1_000_000))
            assert one.host.resources.cut_off == {Why.BYTES: 1}
            await until(lambda: not one.neighbours.is_connected(four.peer))
            assert set(one.neighbours.connected()) == {two.peer, three.peer}
            for link in links:
                link.close()

    def send(one: Someone, to: Someone, frame: bytes) -> None:
        one.neighbours.send(to.peer, write_frames([frame]), lambda: "a topic")

    play(scene)


def test_what_waits_for_peers_that_strangers_named_is_bounded_for_all_together() -> None:
    """A peer that is being dialled holds what it is to be sent; one that is known is let be."""

    async def scene() -> None:
        async with someone(1) as one, someone(2) as two, someone(3) as three, someone(4) as four:
            where = f"/ip4/127.0.0.1/tcp/{tarpit.getsockname()[1]}"
            for other, place in ((two, "a"), (three, "a"), (four, "b")):
                one.book.heard(Contact(other.peer, (where,)), place)
            for other, count in ((two, 9), (three, 4), (four, 3)):
                for _ in range(count):
                    one.neighbours.send(other.peer, write_frames([bytes(1_000_000)]))
                assert not one.host.resources.cut_off
            one.neighbours.send(four.peer, write_frames([bytes(1_000_000)]))
            assert one.host.resources.cut_off == {Why.BYTES: 1}
            assert one.ear.story == ["full", "lost"]  # It was the one who held most, at "a".
            one.book.given([Contact(four.peer, (where,))])
            for _ in range(15):
                one.neighbours.send(four.peer, write_frames([bytes(1_000_000)]))
            assert one.host.resources.cut_off == {Why.BYTES: 1}

    with socket.create_server(("127.0.0.1", 0)) as tarpit:
        play(scene)


@pytest.mark.parametrize("is_news", [True, False])
def test_a_peer_waits_for_turns_unless_what_it_says_is_news(*, is_news: bool) -> None:
    """An honest child brings events that the node lacks, as many as it can."""

    async def scene() -> None:
        async with someone(1) as one, someone(2) as two, trio.open_nursery() as nursery:
            passes = 0
            heard_in: dict[int, int] = {}

            async def count() -> None:
                nonlocal passes
                while True:
                    await trio.lowlevel.checkpoint()
                    passes += 1

            def take(frames: list[bytes]) -> None:
                heard_in[passes] = heard_in.get(passes, 0) + len(frames)
                time.sleep(1.5 * TURN_S)

            two.knows(one)
            two.neighbours.meet(one.peer)
            await until(lambda: two.ear.story == one.ear.story == ["up"])
            nursery.start_soon(count)
            one.ear.takes, one.ear.is_news = take, is_news
            two.say(one, *[b"a"] * 40)
            await until(lambda: sum(heard_in.values()) == 40)
            assert (max(heard_in.values()) == 40) is is_news
            nursery.cancel_scope.cancel()

    play(scene)


def test_a_link_that_was_full_is_free_once_the_peer_has_read() -> None:
    async def scene() -> None:
        async with someone(1) as one, someone(2) as two:
            two.knows(one)
            two.neighbours.meet(one.peer)
            await until(lambda: one.ear.story == ["up"])
            for _ in range(FULL_BYTES // 100_000 + 1):
                one.neighbours.send(two.peer, write_frames([RANGE + b"x" * 100_000]))
            assert one.ear.story == ["up", "full"]
            one.neighbours.flush()
            await until(lambda: one.ear.story == ["up", "full", "free"])

    play(scene)


def test_a_peer_without_an_address_is_looked_for() -> None:
    async def scene() -> None:
        async with someone(1) as one, someone(2) as two:
            one.say(two, b"a")
            assert one.ear.looked_for == [two.peer]
            one.knows(two)
            one.neighbours.found(two.peer)
            await until(lambda: two.ear.heard == [b"a"])

    play(scene)


def test_a_peer_that_nobody_knows_is_lost() -> None:
    async def scene() -> None:
        async with someone(1) as one, someone(2) as two:
            one.say(two, b"a")
            one.neighbours.not_found(two.peer)
            assert one.ear.story == ["lost"]

    play(scene)


def test_the_parts_of_a_large_frame_show_that_the_peer_is_alive() -> None:
    async def scene() -> None:
        async with someone(1) as one, someone(2) as two:
            two.knows(one)
            two.neighbours.meet(one.peer)
            await until(lambda: one.ear.story == two.ear.story == ["up"])
            await trio.sleep(MOVING_S)
            link = one.neighbours.link_to(two.peer)
            assert link is not None
            link.send(write_frames([RANGE + bytes(3_000_000)])[:-1])
            link.flush()
            await until(lambda: two.ear.moved)
            assert two.ear.heard == []

    play(scene)
