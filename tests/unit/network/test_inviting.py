"""Invitations: a ticket leads a second node to a topic, and a false one to nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio

from pulsarcast.model.errors import Conflict, LocalError, Unavailable
from pulsarcast.model.ids import cid_of
from pulsarcast.model.tickets import parse_ticket, ticket_text
from pulsarcast.network import node
from pulsarcast.network.node import Node
from tests.unit.network.test_node import play, take

CLOSED = "/ip4/127.0.0.1/tcp/1"
"""Nothing listens there."""


def test_a_ticket_leads_a_second_node_to_the_whole_topic(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann, Node.open(tmp_path / "ben") as ben:
            topic = await ann.create_topic("weather")
            await ann.publish(topic, b"sunny", ack="accepted")
            ticket = await ann.invite(topic)
            joined = await ben.join(ticket)
            assert (joined.id, joined.name, joined.author) == (topic.id, "weather", ann.peer_id)
            await ann.publish(topic, b"cloudy", ack="accepted")
            events = await ben.subscribe(topic, start="beginning")
            assert await take(events, 2) == [b"sunny", b"cloudy"]
            assert (await ben.join(ticket)).id == topic.id, "a second time is harmless"
            with pytest.raises(
                Conflict, match="this ticket is of this node: run join on the other"
            ):
                await ann.join(ticket)
            other = parse_ticket(await ben.invite(topic))
            assert (other.peer, other.author) == (ben.identity, ann.identity)

    play(scene)


def test_a_name_that_a_terminal_would_obey_is_left_out(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann, Node.open(tmp_path / "ben") as ben:
            topic = await ann.create_topic("\x1b[2J")
            ticket = await ann.invite(topic)
            assert parse_ticket(ticket).name == ""
            assert (await ben.join(ticket)).id == topic.id

    play(scene)


def test_who_has_no_address_invites_nobody(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann", listen=()) as ann:
            topic = await ann.create_topic("weather")
            with pytest.raises(LocalError, match="no address"):
                await ann.invite(topic)

    play(scene)


def test_a_ticket_that_says_something_false_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "JOIN_S_MAX", 0.5)
    monkeypatch.setattr(node, "FIRST_PEER_S_MAX", 0.5)

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann, Node.open(tmp_path / "ben") as ben:
            topic = await ann.create_topic("weather")
            true = parse_ticket(await ann.invite(topic))
            for false, reason in (
                ({"author": ben.identity}, "another author or topic"),
                ({"name": "news"}, "another author or topic"),
                ({"network": "trial"}, "for the network 'trial', and this node is in 'main'"),
                ({"addresses": ()}, "no address that this node can dial"),
                # Of a later version, or hostile.
                ({"addresses": ("/ip4/192.0.2.1/udp/1/quic-v1", "/ip4/0.0.0.0/tcp/1")}, "no addr"),
            ):
                with pytest.raises(LocalError, match=reason):
                    await ben.join(ticket_text(msgspec.structs.replace(true, **false)))
            assert not ben.topics(), "nothing was followed"
            unknown = msgspec.structs.replace(true, topic=cid_of(b"no topic"))
            with pytest.raises(Unavailable, match="does not have it"):
                await ben.join(ticket_text(unknown))

    play(scene)


def test_an_address_of_another_kind_is_ignored_beside_one_that_can_be_dialled(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann, Node.open(tmp_path / "ben") as ben:
            topic = await ann.create_topic("weather")
            true = parse_ticket(await ann.invite(topic))
            strange = ("/ip4/192.0.2.1/udp/1/quic-v1", CLOSED, *true.addresses)
            joined = await ben.join(ticket_text(msgspec.structs.replace(true, addresses=strange)))
            assert joined.id == topic.id

    play(scene)


@pytest.mark.slow
def test_a_peer_that_does_not_answer_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "JOIN_S_MAX", 0.3)
    monkeypatch.setattr(node, "FIRST_PEER_S_MAX", 0.3)

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            ticket = await ann.invite(topic)
            (address,) = (each.partition("/p2p/")[0] for each in ann.addresses)
        async with Node.open(tmp_path / "ben") as ben:
            with pytest.raises(Unavailable, match=rf"was not found: .*{address}"):
                await ben.join(ticket)
            monkeypatch.undo()
            async with Node.open(tmp_path / "ann", listen=[address]):
                with trio.fail_after(20):
                    while not ben.peers():
                        await trio.sleep(0.05)
                assert (await ben.join(ticket)).id == topic.id

    play(scene)
