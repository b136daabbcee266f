"""Relays between nodes of ours: reservations, circuits, and what becomes of both."""

from typing import Any

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec.structs import replace

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.identity import Identity
from pulsarcast.model.reach import Reach
from pulsarcast.network import host as host_module
from pulsarcast.network import relay_client, relay_server
from pulsarcast.network.circuits import check_voucher, seal_voucher
from pulsarcast.network.link import Link
from pulsarcast.network.multiaddrs import Relay, relay_of, relayed_address
from pulsarcast.network.yamux import YamuxStream
from pulsarcast.protocol.messages import Contact
from pulsarcast.wire.libp2p_pb2 import Envelope
from tests.unit.network.relayed import LOOPBACK, Party, party, play, until, world


def test_two_peers_that_cannot_be_dialled_speak_through_a_relay() -> None:
    async def scene() -> None:
        async with world() as (relay, ann, ben):
            assert relay.relaying.reservation_count == 2
            ann.knows(ben)
            words = [b"%d" % number for number in range(200)]
            ann.say(ben, *words)
            await until(lambda: ben.ear.heard == words)
            ben.say(ann, b"back")
            await until(lambda: ann.ear.heard == [b"back"])
            for link in (ann.link_to(ben), ben.link_to(ann)):
                assert link.relay == relay.peer
                found = relay_of(link.remote_address)
                assert found is not None
                assert found.peer == relay.peer
            assert relay.relaying.circuit_count == 1
            assert relay.relaying.bytes_relayed > 1000
            # The relay heard nothing of it, and nobody counts a byte twice.
            assert relay.ear.heard == []
            assert ann.neighbours.bytes_out == ann.link_to(relay).bytes_out
            assert ann.link_to(ben).bytes_out > 500

    play(scene)


def test_a_direct_address_goes_before_a_relayed_one() -> None:
    async def scene() -> None:
        async with world() as (relay, ann, ben):
            ann.book.heard(Contact(ben.peer, (*ben.hello.addresses, *ben.direct)))
            ann.say(ben, b"hello")
            await until(lambda: ben.ear.heard == [b"hello"])
            assert ann.link_to(ben).relay is None
            assert relay.relaying.circuit_count == 0

    play(scene)


def test_a_stranger_dials_the_relay_first_and_keeps_that_connection() -> None:
    async def scene() -> None:
        async with world(private=1) as (relay, ben), party(7) as ann:
            ann.knows(ben)
            ann.say(ben, b"hello")
            await until(lambda: ben.ear.heard == [b"hello"])
            carrier = ann.link_to(relay)
            assert carrier.relay is None
            assert carrier.is_held
            ann.link_to(ben).close()
            await until(lambda: carrier.circuits == 0)

    play(scene)


def test_the_end_of_one_end_is_the_end_of_the_other() -> None:
    async def scene() -> None:
        async with world() as (relay, ann, ben):
            ann.knows(ben)
            ann.say(ben, b"hello")
            await until(lambda: ben.ear.heard == [b"hello"])
            ben.link_to(ann).close()
            await until(lambda: ann.ear.story[-1] == "lost")
            await until(lambda: relay.relaying.circuit_count == 0)
            assert ann.link_to(relay).circuits == ben.link_to(relay).circuits == 0
            assert not relay.link_to(ann).circuits

    play(scene)


def test_a_reservation_ends_with_its_connection_and_another_relay_takes_its_place() -> None:
    async def scene() -> None:
        async with world(relays=3, private=1) as (*relays, ann):
            held = [each for each in relays if each.peer in ann.relays.reservations]
            (spare,) = [each for each in relays if each not in held]
            assert len(ann.relays.addresses) == 2
            held[0].link_to(ann).close()
            await until(lambda: spare.peer in ann.relays.reservations)
            assert held[0].relaying.reservation_count == 0
            assert spare.relaying.reservation_count == 1
            assert ann.told[-1] == ann.relays.addresses
            assert len(ann.told[-2]) == 1

    play(scene)


def test_a_circuit_goes_on_through_the_second_relay_where_the_first_one_goes_away() -> None:
    async def scene() -> None:
        async with world(relays=2) as (one, other, ann, ben):
            ann.knows(ben)
            ann.say(ben, b"before")
            await until(lambda: ben.ear.heard == [b"before"])
            used = one if ann.link_to(ben).relay == one.peer else other
            left = other if used is one else one
            for each in (ann, ben):
                used.link_to(each).close()
            await until(lambda: ann.ear.story.count("lost") == 2)
            ann.say(ben, b"after")
            await until(lambda: ben.ear.heard == [b"before", b"after"])
            assert ann.link_to(ben).relay == left.peer

    play(scene)


def test_a_reservation_is_renewed_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_server, "RESERVATION_S", 1.0)
    monkeypatch.setattr(relay_client, "LIFE_S_MIN", 0.4)
    monkeypatch.setattr(relay_client, "LOOK_S", 0.05)
    monkeypatch.setattr(relay_server, "LOOK_S", 0.05)

    async def scene() -> None:
        async with world(private=1) as (relay, ann):
            first = ann.relays.reservations[relay.peer]
            await trio.sleep(1.5)
            assert relay.relaying.reservation_count == 1
            assert ann.relays.reservations[relay.peer].until_s > first.until_s
            assert len(ann.told) == 1

    play(scene)


def test_a_reservation_that_is_not_renewed_ends_with_its_circuits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_server, "RESERVATION_S", 0.5)
    monkeypatch.setattr(relay_server, "LOOK_S", 0.05)

    async def scene() -> None:
        async with world() as (relay, ann, ben):
            ann.knows(ben)
            ann.say(ben, b"hello")
            await until(lambda: ben.ear.heard == [b"hello"])
            await until(lambda: relay.relaying.reservation_count == 0)
            await until(lambda: not ann.neighbours.is_connected(ben.peer))
            assert relay.relaying.circuit_count == 0

    play(scene)


def test_a_node_that_becomes_public_gives_its_reservations_up() -> None:
    async def scene() -> None:
        async with world(private=1) as (relay, ann):
            ann.hello = ann.hello.__class__("main", (2,), reach=Reach.PUBLIC)
            ann.relays.look()
            await until(lambda: not ann.relays.reservations)
            assert ann.told[-1] == ()
            assert not ann.link_to(relay).is_held

    play(scene)


def test_a_node_that_is_not_public_is_no_relay() -> None:
    async def scene() -> None:
        async with party(1, Reach.PUBLIC) as ann, party(2, Reach.PUBLIC) as ben:
            ann.knows(ben)
            ben.hello = ben.hello.__class__("main", (2,), ben.hello.addresses, reach=Reach.PUBLIC)
            link = await ann.meets(ben)
            ben.hello = ben.hello.__class__("main", (2,), reach=Reach.UNKNOWN)
            await ann.relays._reserve(link)
            assert ben.relaying.reservation_count == 0
            assert ben.peer in ann.relays._refused

    play(scene)


def test_two_that_dial_each_other_through_the_relay_at_once_come_to_one_connection() -> None:
    async def scene() -> None:
        async with world() as (relay, ann, ben):
            ann.knows(ben)
            ben.knows(ann)
            words = [b"%d" % number for number in range(50)]
            for word in words:
                ann.say(ben, word)
                ben.say(ann, word)
                await trio.sleep(0.001)
            await until(lambda: ann.ear.heard == words and ben.ear.heard == words)
            assert ann.ear.story.count("up") == ben.ear.story.count("up") == 2
            await until(lambda: relay.relaying.circuit_count == 1)

    play(scene)


def test_two_peers_that_are_said_to_be_each_others_relays_are_given_up() -> None:
    async def scene() -> None:
        async with party(1) as ann, party(2) as ben, party(9) as eve:
            nowhere = "/ip4/127.0.0.1/tcp/1"
            for peer, relay in ((ann.peer, ben.peer), (ben.peer, ann.peer)):
                eve.book.heard(Contact(peer, (relayed_address(Relay(relay, nowhere)),)))
            eve.say(ann, b"x")
            eve.say(ben, b"x")
            await until(lambda: eve.ear.story.count("lost") >= 2)
            assert not eve.neighbours.connected()

    play(scene)


def test_a_circuit_that_a_relays_limits_end_is_dialled_again() -> None:
    async def scene() -> None:
        async with world() as (relay, ann, ben):
            # For this relay neither is of its own kind.
            relay.relaying._is_neighbour = lambda _: False
            ann.knows(ben)
            ann.say(ben, b"before")
            await until(lambda: ben.ear.heard == [b"before"])
            ann.say(ben, bytes(2 * relay_server.FOREIGN_BYTES_MAX))
            await until(lambda: ann.ear.story[-1] == ben.ear.story[-1] == "lost")
            ann.say(ben, b"after")
            await until(lambda: ben.ear.heard == [b"before", b"after"])

    play(scene)


class Foreign(Link):
    """The end of a connection at a peer that does not speak our protocol."""

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        self._stream.reset()

    def _expect(self, stream: YamuxStream) -> None:
        if stream is not self._stream:
            super()._expect(stream)

    def _negotiate(
        self, stream: YamuxStream, arrived: bytearray, said: list[bytes], data: bytes
    ) -> None:
        super()._negotiate(stream, arrived, said, data.replace(b"/pulsarcast/", b"/something/"))


def test_a_relay_that_does_not_speak_our_protocol_serves_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        foreign = Party(99, Reach.PUBLIC)
        foreign.direct = await foreign.host.listen(LOOPBACK)
        foreign.hello = replace(foreign.hello, addresses=foreign.direct)

        def link(*args: Any, **words: Any) -> Link:
            kind = Foreign if words["services"] is foreign.host.services else Link
            return kind(*args, **words)

        async def accepted(link: Link) -> None:
            await link.run(lambda _: None)

        monkeypatch.setattr(host_module, "Link", link)
        async with trio.open_nursery() as nursery, party(1) as ann, party(2) as ben:
            nursery.start_soon(foreign.host.serve, accepted)
            ann.knows(foreign)
            ann.neighbours.meet(foreign.peer)  # As a bootstrap peer, say.
            await until(lambda: foreign.peer in ann.relays.reservations)
            assert not ann.neighbours.is_connected(foreign.peer)
            carrier = ann.neighbours.guests.link_to(foreign.peer)
            assert carrier is not None
            assert carrier.is_guest
            assert carrier.is_held
            ben.knows(ann)
            ben.say(ann, b"hello")
            await until(lambda: ann.ear.heard == [b"hello"])
            assert ben.link_to(ann).relay == foreign.peer
            nursery.cancel_scope.cancel()

    play(scene)


def test_a_voucher_is_signed_as_libp2ps_envelopes_are() -> None:
    """Byte by byte, as RFC 0002 and circuit-v2 have it: so go and js read it."""
    relay, ann = (Identity.from_seed(bytes([seed]) * 32) for seed in (1, 2))
    envelope = Envelope.FromString(seal_voucher(relay, ann.peer_id, 1_900_000_000))
    assert envelope.public_key == b"\x08\x01\x12\x20" + relay.peer_id[-32:]
    assert envelope.payload_type == bytes.fromhex("0302")
    peers = b"\x0a\x26" + relay.peer_id + b"\x12\x26" + ann.peer_id
    payload = peers + bytes.fromhex("1880e6fe8907")  # 1,900,000,000
    assert envelope.payload == payload
    signed = b"\x11libp2p-relay-rsvp" + b"\x02\x03\x02" + bytes([len(payload)]) + payload
    key = Ed25519PublicKey.from_public_bytes(relay.peer_id[-32:])
    key.verify(envelope.signature, signed)


def test_a_voucher_is_believed_of_its_relay_and_for_its_peer_alone() -> None:
    relay, ann, eve = (Identity.from_seed(bytes([seed]) * 32) for seed in (1, 2, 3))
    voucher = seal_voucher(relay, ann.peer_id, 1_900_000_000)
    assert check_voucher(voucher, relay.peer_id, ann.peer_id) == 1_900_000_000
    for by, of in ((eve, ann), (relay, eve)):
        with pytest.raises(RemoteError):
            check_voucher(voucher, by.peer_id, of.peer_id)
    with pytest.raises(RemoteError):
        check_voucher(voucher[:-1] + bytes([voucher[-1] ^ 1]), relay.peer_id, ann.peer_id)
