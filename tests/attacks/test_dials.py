"""Peers that name others which never answer, and a node that has peers to reach."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import PEER_ID_PREFIX, PeerId, cid_of
from pulsarcast.network.addresses import parse_contact
from pulsarcast.network.dials import DIALS_MAX, PATIENT_S, WAITING_DIALS_MAX, Dials
from pulsarcast.network.host import DialError
from pulsarcast.network.link import Link
from pulsarcast.network.node import Node
from pulsarcast.protocol.messages import (
    BlockFound,
    Contact,
    FindBlock,
    FindPeers,
    Join,
    Peers,
    Role,
)
from pulsarcast.wire.codec import decode
from pulsarcast.wire.framing import write_frames
from pulsarcast.wire.hello import Hello, encode_hello
from tests.attacks.victim import address, say, stranger
from tests.unit.network.test_neighbours import play, someone, until

REACHED_S_MAX = 2.0
NAMED = 100


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("namers", [1, 4, 8])
def test_contacts_at_a_tarpit_keep_a_node_from_nobody_else(namers: int, *, is_known: bool) -> None:
    """One place named enough of them to hold all dials: a peer was reached after 39 s.

    Four places did the same to peers that only others named.
    """
    taken = 0

    async def take(stream: trio.SocketStream) -> None:
        nonlocal taken
        taken += 1
        await trio.sleep_forever()

    async def scene() -> None:
        async with someone(1) as one, someone(2) as two, trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, take, 0)
            port = listeners[0].socket.getsockname()[1]
            for number in range(NAMED * namers):
                peer = PeerId(PEER_ID_PREFIX + os.urandom(32))
                place = f"127.66.{number % namers}.0/24"
                one.book.heard(Contact(peer, (f"/ip4/127.0.0.1/tcp/{port}",)), place)
                one.neighbours.meet(peer)
            await until(lambda: taken >= DIALS_MAX)
            # What comes after so many fails at once, and is tried again later.
            room = 2 * DIALS_MAX + namers * WAITING_DIALS_MAX
            assert len(one.ear.reasons) >= NAMED * namers - room
            contact = Contact(two.peer, two.hello.addresses)
            one.book.given([contact]) if is_known else one.book.heard(contact, "127.0.0.0/24")
            one.neighbours.meet(two.peer)
            with trio.fail_after(REACHED_S_MAX):
                await until(lambda: one.ear.story[-1:] == ["up"])
            nursery.cancel_scope.cancel()

    play(scene)


def dials_of(*namers: str, s_max: float = 60.0) -> list[tuple[str, float, str]]:
    """Dials that never end, in this order: who named the peer, when it began, or failed."""
    story: list[tuple[str, float, str]] = []

    async def scene() -> None:
        dials = Dials()
        begin_s = trio.current_time()

        async def dial(namer: str) -> Link:
            story.append((namer, trio.current_time() - begin_s, "began"))
            await trio.sleep_forever()
            raise AssertionError

        async def run(namer: str) -> None:
            try:
                await dials.run(namer, lambda: dial(namer))
            except DialError:
                story.append((namer, trio.current_time() - begin_s, "failed"))

        with trio.move_on_after(s_max):
            async with trio.open_nursery() as nursery:
                for namer in namers:
                    nursery.start_soon(run, namer)
                    await trio.testing.wait_all_tasks_blocked()

    trio.run(scene, clock=MockClock(autojump_threshold=0))
    return story


def test_one_namer_has_all_places_until_another_comes() -> None:
    """Who lives on a LAN hears of all its peers from one place."""
    story = dials_of(*"a" * DIALS_MAX, "b", s_max=1.0)
    assert story == [("a", 0.0, "began")] * DIALS_MAX + [("b", 0.0, "began")]


def test_a_dial_that_makes_way_early_waits_again_and_one_that_had_its_time_fails() -> None:
    story = dials_of(*"a" * DIALS_MAX, *"b" * DIALS_MAX, s_max=PATIENT_S / 2)
    assert [namer for namer, at_s, what in story] == ["a"] * DIALS_MAX + ["b"] * (DIALS_MAX // 2)
    story = dials_of(*"a" * DIALS_MAX, *"b" * DIALS_MAX, s_max=PATIENT_S * 1.5)
    failed = [namer for namer, at_s, what in story if what == "failed"]
    assert len(failed) == DIALS_MAX
    assert {at_s for _, at_s, what in story if what == "failed"} == {PATIENT_S}


def test_of_many_namers_none_waits_for_long() -> None:
    """Thirty-two of them, of sixteen names each: all have dialled after two turns."""
    story = dials_of(*(str(number % 32) for number in range(32 * 16)), s_max=PATIENT_S * 1.5)
    assert {namer for namer, at_s, what in story if what == "began"} == set(map(str, range(32)))


async def mislead(attacked: Node, source: str, tarpit: str) -> None:
    """Have a node look up topics, and answer its questions with peers that never answer."""
    (contact,) = (parse_contact(each) for each in attacked.addresses)
    link = await stranger(source).dial(contact.peer, contact.addresses)
    link.send(write_frames([encode_hello(Hello("main", (2,), instance=os.urandom(8)))]))
    link.flush()

    def answer(frames: list[bytes]) -> None:
        for frame in frames:
            with suppress(RemoteError):
                message = decode(frame)
                if isinstance(message, FindPeers):
                    say(link, Peers(message.request, made_up()))
                elif isinstance(message, FindBlock):
                    say(link, BlockFound(message.request, None, made_up()))

    def made_up() -> tuple[Contact, ...]:
        peers = (PeerId(PEER_ID_PREFIX + os.urandom(32)) for _ in range(20))
        return tuple(Contact(peer, (tarpit,)) for peer in peers)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run, answer)
        for number in count(1):
            topic = cid_of(os.urandom(8))
            root = PeerId(PEER_ID_PREFIX + os.urandom(32))
            say(link, Join(topic, number, Role.MEMBER, root, handed_down=False, fresh=True))
            await trio.sleep(0.1)


@pytest.mark.parametrize("liars", [4, 8])
def test_a_real_node_reaches_an_honest_peer_beside_contacts_at_a_tarpit(
    tmp_path: Path, liars: int
) -> None:
    """One liar led it to so many of them that this took 38.9 s; today one leads it to six."""

    async def scene() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
            tarpit = f"/ip4/127.0.0.1/tcp/{listener.getsockname()[1]}"
            async with (
                Node.open(tmp_path / "victim") as victim,
                Node.open(tmp_path / "honest") as honest,
                trio.open_nursery() as nursery,
            ):
                for number in range(liars):
                    nursery.start_soon(mislead, victim, address(number), tarpit)
                driver = victim._running
                with trio.fail_after(20):
                    while len(driver.neighbours._dials._taken) < DIALS_MAX:
                        await trio.sleep(0.1)
                    await trio.sleep(1)
                driver.meet(parse_contact(honest.addresses[0]))
                with trio.fail_after(REACHED_S_MAX):
                    while not driver.neighbours.is_connected(honest.identity):
                        await trio.sleep(0.02)
                nursery.cancel_scope.cancel()

    trio.run(scene)
