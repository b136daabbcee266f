"""Crowds of strangers on the connections of a node, and honest peers that want one too."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from pulsarcast.network.host import DialError
from tests.attacks.victim import (
    HONEST_ADDRESS,
    Caller,
    Victim,
    address,
    dial,
    keep,
    victim,
)

ONE_ADDRESS = "127.9.9.9"


def play(scene: Callable[[], Awaitable[None]]) -> None:
    trio.run(scene)


async def silent_sockets(attacked: Victim, sources: list[str]) -> None:
    """Keep so many sockets open that say nothing: one that the victim closes is opened again."""
    with ExitStack() as stack:
        held: dict[socket.socket, str] = {}
        wanted = list(sources)
        while True:
            for source in wanted:
                connection = stack.enter_context(socket.socket())
                connection.setblocking(False)
                connection.bind((source, 0))
                connection.connect_ex(attacked.socket)
                held[connection] = source
            await trio.sleep(0.1)
            wanted = [held.pop(each) for each in list(held) if _is_over(each)]


def _is_over(connection: socket.socket) -> bool:
    """Whether the other end closed it; what it says is dropped."""
    try:
        is_over = not connection.recv(64)
    except BlockingIOError:
        return False
    except OSError:
        is_over = True
    if is_over:
        connection.close()
    return is_over


async def honest_dials(attacked: Victim, source: str, times: int) -> int:
    """How many of these dials come to a connection that stays until it has an answer."""
    reached = 0
    for _ in range(times):
        with trio.move_on_after(5):
            try:
                caller = await Caller.begin(attacked, source)
            except DialError:
                continue
            async with trio.open_nursery() as nursery:
                nursery.start_soon(caller.run)
                await caller.ask(1)
                reached += 1
                caller.link.close()
    return reached


@pytest.mark.parametrize("prefixes", [1, 400])
def test_silent_sockets_keep_no_honest_peer_out(tmp_path: Path, prefixes: int) -> None:
    """400 of them left 0 of 3 dials; now those of all places are answered, at once."""

    async def scene() -> None:
        async with victim(tmp_path / "victim") as attacked, trio.open_nursery() as nursery:
            sources = [address(number % prefixes) for number in range(400)]
            nursery.start_soon(silent_sockets, attacked, sources)
            await trio.sleep(1)
            assert await honest_dials(attacked, HONEST_ADDRESS, 10) == 10
            assert await honest_dials(attacked, address(0), 5) == 5
            nursery.cancel_scope.cancel()

    play(scene)


@pytest.mark.parametrize("prefixes", [1, 300])
def test_identities_without_end_keep_no_honest_peer_out(tmp_path: Path, prefixes: int) -> None:
    """1,028 of one address left 0 of 16 dials. The victim has room for 256 here."""

    async def scene() -> None:
        async with victim(tmp_path / "victim", files_max=512) as attacked:
            async with trio.open_nursery() as nursery:
                early = await Caller.begin(attacked)
                nursery.start_soon(early.run)
                await early.ask(1)
                room = trio.CapacityLimiter(4)

                async def come(source: str) -> None:
                    async with room:
                        link = await dial(attacked, source)
                    await keep(link)

                async with trio.open_nursery() as crowd:
                    for number in range(300):
                        crowd.start_soon(come, address(number % prefixes))
                    await trio.sleep(0.5)
                    while room.borrowed_tokens:
                        await trio.sleep(0.1)
                    assert await honest_dials(attacked, HONEST_ADDRESS, 10) == 10
                    assert await honest_dials(attacked, address(0), 5) == 5
                    if prefixes == 1:
                        await early.ask(1)  # It was connected before, and is of another place.
                    crowd.cancel_scope.cancel()
                nursery.cancel_scope.cancel()

    play(scene)


@pytest.mark.parametrize("source", [ONE_ADDRESS])
def test_fifty_peers_that_join_at_once_from_one_address_are_all_taken(
    tmp_path: Path, source: str
) -> None:
    """Behind one NAT, or on one LAN: nobody is refused, nor closed later."""

    async def scene() -> None:
        async with victim(tmp_path / "victim") as attacked, trio.open_nursery() as nursery:
            callers: list[Caller] = []

            async def come() -> None:
                caller = await Caller.begin(attacked, source)
                callers.append(caller)
                nursery.start_soon(caller.run)

            with trio.fail_after(5):
                async with trio.open_nursery() as crowd:
                    for _ in range(50):
                        crowd.start_soon(come)
            for caller in callers:
                await caller.ask(1)
            assert len(callers) == 50
            nursery.cancel_scope.cancel()

    play(scene)
