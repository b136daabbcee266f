"""Relays against peers that want all of them, and peers against relays that lie."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.identity import Identity
from pulsarcast.model.reach import Reach
from pulsarcast.network import link as link_module
from pulsarcast.network import relay_client, relay_server
from pulsarcast.network import streams as streams_module
from pulsarcast.network.circuits import (
    CIRCUITS_PER_PEER_MAX,
    HOP,
    MESSAGE_BYTES_MAX,
    PIECE_BYTES_MAX,
    STOP,
)
from pulsarcast.network.circuits import hear as hear_message
from pulsarcast.network.circuits import say as say_message
from pulsarcast.network.host import Host
from pulsarcast.network.link import Link
from pulsarcast.network.streams import Service, Stream
from pulsarcast.wire import libp2p_pb2 as pb
from pulsarcast.wire.framing import write_frames
from pulsarcast.wire.hello import Hello, encode_hello
from pulsarcast.wire.libp2p_pb2 import HopMessage, StopMessage
from tests.unit.network.hosts import RANGE
from tests.unit.network.relayed import Party, party, play, until, world

ELSEWHERE = "127.0.9.1"
"""Another network prefix of this machine."""


class Client:
    """A peer that asks relays for whatever it likes, and answers them as it likes."""

    def __init__(self, seed: int, source: str | None = None) -> None:
        identity = Identity.from_seed(seed.to_bytes(32, "big"))
        self.peer = identity.peer_id
        self.host = Host(identity, dial_from=source)
        self.accepts = True
        """Whether it accepts circuits; it says nothing on them."""
        self.circuits: list[Stream] = []
        self.link: Link
        self.host.services[STOP] = Service(self._stop, 1000, 1000.0)

    async def _stop(self, stream: Stream) -> None:
        await hear_message(stream, StopMessage)
        self.circuits.append(stream)
        if self.accepts:
            await say_message(stream, StopMessage(type=StopMessage.STATUS, status=pb.OK))
        await trio.sleep_forever()

    async def ask(self, message: HopMessage, link: Link | None = None) -> tuple[Stream, HopMessage]:
        """Ask the relay for something."""
        stream = await (link or self.link).open_stream(HOP)
        await say_message(stream, message)
        return stream, await hear_message(stream, HopMessage)

    async def reserve(self, link: Link | None = None) -> int:
        """Ask for a reservation; what the relay says to that."""
        stream, answer = await self.ask(HopMessage(type=HopMessage.RESERVE), link)
        stream.reset()
        return answer.status

    async def connect(self, peer: bytes, link: Link | None = None) -> tuple[Stream, int]:
        """Ask for a circuit; the stream, and what the relay says to that."""
        asked = HopMessage(type=HopMessage.CONNECT, peer=pb.Peer(id=peer))
        stream, answer = await self.ask(asked, link)
        return stream, answer.status


@asynccontextmanager
async def client(
    relay: Party, seed: int, source: str | None = None, *, speaks: bool = True
) -> AsyncIterator[Client]:
    """A peer that is connected to a relay; without `speaks` it is a guest there."""
    me = Client(seed, source)
    me.link = link = await me.host.dial(relay.peer, relay.direct)
    if speaks:
        hello = Hello("main", (2,), instance=seed.to_bytes(4, "big"), reach=Reach.PRIVATE)
        link.send(write_frames([encode_hello(hello)]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run, lambda _: None)
        if speaks:
            await until(lambda: relay.neighbours.is_connected(me.peer))
        try:
            yield me
        finally:
            link.close()
            nursery.cancel_scope.cancel()


async def said(one: Party, other: Party, word: bytes) -> None:
    """One peer says a word to another one, and it arrives."""
    one.knows(other)
    one.say(other, word)
    await until(lambda: word in other.ear.heard)


def test_a_thousand_reservations_of_one_peer_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "PLACE_S_MIN", 0.0)

    async def scene() -> None:
        async with party(100, Reach.PUBLIC) as relay, client(relay, 1) as eve:
            for _ in range(1000):
                assert await eve.reserve() == pb.OK
            assert relay.relaying.reservation_count == 1
            link = relay.neighbours.link_to(eve.peer)
            assert link is not None
            assert len(link.at_close) == 1

    play(scene)


def test_one_network_cannot_take_all_reservations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_server, "RESERVATIONS_PER_PLACE_MAX", 5)

    async def scene() -> None:
        async with AsyncExitStack() as stack:
            relay = await stack.enter_async_context(party(100, Reach.PUBLIC))
            horde = [
                await stack.enter_async_context(client(relay, 1 + number)) for number in range(8)
            ]
            answers = [await each.reserve() for each in horde]
            assert answers == [pb.OK] * 5 + [pb.RESERVATION_REFUSED] * 3
            other = await stack.enter_async_context(client(relay, 50, ELSEWHERE))
            assert await other.reserve() == pb.OK
            # A peer that has one may renew it all the same, and a place that is left is free.
            assert await horde[0].reserve() == pb.OK
            horde[1].link.close()
            await until(lambda: relay.relaying.reservation_count == 5)
            assert await horde[7].reserve() == pb.OK

    play(scene)


def test_there_are_so_many_reservations_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_server, "RESERVATIONS_MAX", 3)

    async def scene() -> None:
        async with AsyncExitStack() as stack:
            relay = await stack.enter_async_context(party(100, Reach.PUBLIC))
            answers = []
            for number in range(5):
                source = f"127.0.{10 + number}.1"
                each = await stack.enter_async_context(client(relay, 1 + number, source))
                answers.append(await each.reserve())
            assert answers == [pb.OK] * 3 + [pb.RESERVATION_REFUSED] * 2

    play(scene)


def test_a_greedy_circuit_gets_its_rate_and_others_are_unharmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rate, burst = 100_000, 200_000
    monkeypatch.setattr(relay_server, "CIRCUIT_BYTES_S", rate)
    monkeypatch.setattr(relay_server, "CIRCUIT_BURST_BYTES", burst)

    async def scene() -> None:
        async with world(private=3) as (relay, ann, ben, cat):
            await said(ann, ben, b"x")
            await said(cat, ben, b"y")
            began_s = trio.current_time()
            for _ in range(40):
                ann.say(ben, RANGE + bytes(50_000))
            for number in range(20):
                word = b"cat %d" % number
                said_s = trio.current_time()
                cat.say(ben, word)
                await until(lambda word=word: word in ben.ear.heard)  # type: ignore[misc]
                assert trio.current_time() - said_s < 1.0
                await trio.sleep(0.05)
            took_s = trio.current_time() - began_s
            # One piece may be on its way beyond what is paid for, each way.
            most = burst + rate * took_s + 2 * PIECE_BYTES_MAX + 50_000
            assert burst < relay.relaying.bytes_relayed < most
            # What is too much waits with the peer that sends it.
            assert ann.link_to(ben).queued_bytes > 500_000
            assert relay.link_to(ben).queued_bytes < 200_000

    play(scene)


def test_all_circuits_together_get_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_server, "RELAYED_BYTES_S", 100_000)
    monkeypatch.setattr(relay_server, "RELAYED_BURST_BYTES", 100_000)

    async def scene() -> None:
        async with world(private=3) as (relay, ann, ben, cat):
            await said(ann, ben, b"x")
            await said(cat, ben, b"y")
            began_s = trio.current_time()
            for each in (ann, cat):
                for _ in range(20):
                    each.say(ben, bytes(50_000))
            await trio.sleep(1.0)
            most = 100_000 * (1 + trio.current_time() - began_s)
            assert relay.relaying.bytes_relayed < most + 6 * PIECE_BYTES_MAX

    play(scene)


def test_readers_that_stall_fill_no_more_than_there_is_and_lose_their_own_circuits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams_module, "UNREAD_BYTES_MAX", 600_000)

    async def scene() -> None:
        async with world() as (relay, ann, ben):
            await said(ann, ben, b"before")
            async with client(relay, 50) as eve, client(relay, 51) as mallory:
                # Eve accepts circuits and reads nothing of them.
                held = relay.host.services
                streams = []
                assert await eve.reserve() == pb.OK
                for _ in range(4):
                    stream, status = await mallory.connect(eve.peer)
                    assert status == pb.OK
                    streams.append(stream)
                async with trio.open_nursery() as nursery:

                    async def pour(stream: Stream) -> None:
                        try:
                            while True:
                                await stream.write(bytes(20_000))
                        except RemoteError:
                            pass  # The relay has ended this one.

                    for stream in streams:
                        nursery.start_soon(pour, stream)
                    for number in range(20):
                        await said(ann, ben, b"while %d" % number)
                        assert held.unread_bytes <= 600_000
                        await trio.sleep(0.05)
                    nursery.cancel_scope.cancel()
                assert relay.relaying.circuit_count < 5
                assert ann.link_to(ben).is_open
                assert ann.ear.story.count("lost") == 0

    play(scene)


def test_silent_circuits_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_server, "IDLE_S_MAX", 0.5)
    monkeypatch.setattr(relay_server, "LOOK_S", 0.05)

    async def scene() -> None:
        async with AsyncExitStack() as stack:
            relay = await stack.enter_async_context(party(100, Reach.PUBLIC))
            ben = await stack.enter_async_context(client(relay, 1))
            eve = await stack.enter_async_context(client(relay, 2))
            assert await ben.reserve() == pb.OK
            stream, status = await eve.connect(ben.peer)
            assert status == pb.OK
            for _ in range(6):
                await stream.write(b"alive")
                await trio.sleep(0.15)
            assert relay.relaying.circuit_count == 1
            with pytest.raises(RemoteError):
                await stream.read(1)
            await until(lambda: relay.relaying.circuit_count == 0)
            assert not relay.neighbours.links()[0].circuits

    play(scene)


def test_connects_that_nobody_answers_take_their_own_places_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_server, "CONNECT_S_MAX", 1.0)
    monkeypatch.setattr(relay_server, "CIRCUITS_PER_PEER_MAX", 6)

    async def scene() -> None:
        async with world() as (relay, ann, ben), client(relay, 50) as eve:
            async with client(relay, 51) as accomplice:
                accomplice.accepts = False
                assert await accomplice.reserve() == pb.OK
                answers: list[int] = []

                async def connect() -> None:
                    answers.append((await eve.connect(accomplice.peer))[1])

                async with trio.open_nursery() as nursery:
                    for _ in range(10):
                        nursery.start_soon(connect)
                    await until(lambda: len(answers) == 4)
                    assert relay.relaying.circuit_count == 6
                    await said(ann, ben, b"meanwhile")
                assert (
                    sorted(answers) == [pb.RESOURCE_LIMIT_EXCEEDED] * 4 + [pb.CONNECTION_FAILED] * 6
                )
                assert relay.relaying.circuit_count == 1

    play(scene)


def test_one_network_cannot_take_all_circuits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_server, "CIRCUITS_PER_PLACE_MAX", 4)

    async def scene() -> None:
        async with AsyncExitStack() as stack:
            relay = await stack.enter_async_context(party(100, Reach.PUBLIC))
            ben = await stack.enter_async_context(client(relay, 1))
            assert await ben.reserve() == pb.OK
            answers = []
            for number in range(3):
                eve = await stack.enter_async_context(client(relay, 10 + number))
                answers += [(await eve.connect(ben.peer))[1] for _ in range(2)]
            assert answers == [pb.OK] * 4 + [pb.RESOURCE_LIMIT_EXCEEDED] * 2
            other = await stack.enter_async_context(client(relay, 50, ELSEWHERE))
            assert (await other.connect(ben.peer))[1] == pb.OK

    play(scene)


def test_no_peer_has_more_circuits_than_its_connection_has_streams() -> None:
    assert relay_server.REQUESTS_MAX <= 32
    assert CIRCUITS_PER_PEER_MAX < relay_server.REQUESTS_MAX

    async def scene() -> None:
        async with world(private=1) as (relay, ben), client(relay, 50) as eve:
            answers = [(await eve.connect(ben.peer))[1] for _ in range(CIRCUITS_PER_PEER_MAX + 2)]
            assert answers.count(pb.OK) == CIRCUITS_PER_PEER_MAX
            assert answers[-1] == pb.RESOURCE_LIMIT_EXCEEDED

    play(scene)


def test_a_circuit_over_a_circuit_is_refused() -> None:
    async def scene() -> None:
        async with world() as (_, ann, ben):
            await said(ann, ben, b"hello")
            # Ben becomes public, and serves those that dial him directly.
            ben.hello = Hello("main", (2,), ben.direct, reach=Reach.PUBLIC)
            eve = Client(9)
            relayed = ann.link_to(ben)
            assert relayed.relay is not None
            assert await eve.reserve(relayed) == pb.PERMISSION_DENIED
            assert (await eve.connect(ann.peer, relayed))[1] == pb.PERMISSION_DENIED
            assert ben.relaying.reservation_count == 0
            # Nor does a node look for a relay over a relayed connection.
            assert relayed is not ann.relays._candidate()

    play(scene)


def test_a_forged_stop_is_refused() -> None:
    """Only a relay that has a reservation for the node brings it circuits."""

    async def scene() -> None:
        async with world() as (_, ann, ben), party(9, Reach.PUBLIC) as eve:
            link = await eve.meets_directly(ann)
            before = ann.host.connection_count
            with await link.open_stream(STOP) as stream:
                peer = pb.Peer(id=ben.peer)
                await say_message(stream, StopMessage(type=StopMessage.CONNECT, peer=peer))
                answer = await hear_message(stream, StopMessage)
            assert answer.status == pb.PERMISSION_DENIED
            assert ann.host.connection_count == before

    play(scene)


def test_a_relay_that_names_another_peer_is_not_believed() -> None:
    """Who is there is what the handshake proves: the relay's word counts for nothing."""

    async def scene() -> None:
        async with world() as (relay, ann, ben):
            link = relay.link_to(ben)
            with await link.open_stream(STOP) as stream:
                peer = pb.Peer(id=ann.peer)
                await say_message(stream, StopMessage(type=StopMessage.CONNECT, peer=peer))
                assert (await hear_message(stream, StopMessage)).status == pb.OK
                await stream.write(b"I am Ann, believe me")
            await trio.sleep(0.1)
            assert not ben.neighbours.is_connected(ann.peer)
            assert ben.ear.story == ["up"]

    play(scene)


def test_what_is_no_request_is_answered_as_the_rules_say() -> None:
    async def scene() -> None:
        async with party(100, Reach.PUBLIC) as relay, client(relay, 1) as eve:
            for speech, expected in (
                (write_frames([b"\xff\xff\xff"]), pb.MALFORMED_MESSAGE),
                (write_frames([bytes(MESSAGE_BYTES_MAX + 1)]), pb.MALFORMED_MESSAGE),
                (write_frames([b""]), pb.UNEXPECTED_MESSAGE),
            ):
                stream = await eve.link.open_stream(HOP)
                await stream.write(speech)
                assert (await hear_message(stream, HopMessage)).status == expected
                stream.reset()
            _, answer = await eve.ask(HopMessage(type=HopMessage.STATUS, status=pb.OK))
            assert answer.status == pb.UNEXPECTED_MESSAGE
            assert (await eve.connect(b"nobody"))[1] == pb.MALFORMED_MESSAGE
            assert (await eve.connect(relay.peer))[1] == pb.NO_RESERVATION
            assert relay.relaying.circuit_count == 0

    play(scene)


def test_half_a_request_is_waited_for_so_long_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_server, "REQUEST_S_MAX", 0.2)

    async def scene() -> None:
        async with party(100, Reach.PUBLIC) as relay, client(relay, 1) as eve:
            stream = await eve.link.open_stream(HOP)
            await stream.write(b"\x10\x08")
            with pytest.raises(RemoteError, match="reset"):
                await stream.read(1)

    play(scene)


def test_a_foreign_peer_gets_so_many_bytes_and_is_told_so() -> None:
    async def scene() -> None:
        async with world(private=1) as (relay, ben), client(relay, 50, speaks=False) as eve:
            asked = HopMessage(type=HopMessage.CONNECT, peer=pb.Peer(id=ben.peer))
            stream, answer = await eve.ask(asked)
            assert answer.status == pb.OK
            assert answer.limit.data == relay_server.FOREIGN_BYTES_MAX
            assert answer.limit.duration == relay_server.FOREIGN_S_MAX
            with pytest.raises(RemoteError):
                await stream.write(bytes(10 * relay_server.FOREIGN_BYTES_MAX))
            await until(lambda: relay.relaying.circuit_count == 0)
            assert relay.relaying.bytes_relayed < 2 * relay_server.FOREIGN_BYTES_MAX

    play(scene)


def test_a_relay_that_never_answers_delays_no_reservation_at_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_client, "ANSWER_S_MAX", 0.3)

    async def silent(stream: Stream) -> None:
        await trio.sleep_forever()

    async def scene() -> None:
        async with party(101, Reach.PUBLIC) as mute, party(100, Reach.PUBLIC) as relay:
            mute.host.services[HOP] = Service(silent, 10, 100.0)
            async with party(1) as ann:
                await ann.meets(mute)
                await ann.meets(relay)
                await until(lambda: relay.peer in ann.relays.reservations)
                await until(lambda: mute.peer in ann.relays._refused)
                assert relay.peer in ann.relays.reservations

    play(scene)
