"""A node process: opens its contestant when told to, then obeys until its control socket ends."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, assert_never

import trio

from pulsarcast.model.errors import LocalError, PulsarcastError
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.network.collecting import collect_seldom
from pulsarcast.testbed.contestants.contestants import Contestant, Filtering, Opener, Seat, Settings
from pulsarcast.testbed.ledger import Ledger, Teller
from pulsarcast.testbed.lifelines import end_with
from pulsarcast.testbed.messages import (
    Answer,
    AskCounts,
    AskLead,
    Command,
    Counts,
    Created,
    CreateRouted,
    CreateTopic,
    Done,
    Failed,
    Follow,
    Join,
    Lead,
    Measure,
    Measured,
    Open,
    Opened,
    Publish,
    Published,
    PublishWith,
    Routing,
    Splitter,
    Stop,
    Subscribe,
    Subscribed,
    SubscribeWhere,
    decode_command,
    encode,
)

METER_S: Final = 0.2
"""How often a node writes into shared memory what it received and sent."""
_RECEIVE_BYTES: Final = 64 * 1024
_left_behind: Final[list[object]] = []


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the parent decided about its nodes before it forks one."""

    opener: Opener
    size: int
    settings: Settings
    ledger: Ledger
    number_of: Callable[[bytes], int]


def run(
    plan: Plan, *, index: int, life: int, home: Path, control: socket.socket, parent: int
) -> NoReturn:
    """Be a node process, from just after the fork to the end."""
    code = 1
    try:
        _detach(control, home, parent)
        trio.run(_serve, control, plan, index, life, home)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Whatever the parent had set up to happen at its end is the parent's alone.
        os._exit(code)


def _detach(control: socket.socket, home: Path, parent: int) -> None:
    """Leave behind what was the parent's: its signals, files, output and rules for warnings."""
    end_with(parent)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # A terminal sends this to everyone in front of it; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    output = os.open(output_of(home), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(output, standard)
    kept = control.fileno()
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    # Kept, not closed: their files have numbers that may be ours by now.
    _left_behind.extend(logging.root.handlers)
    logging.root.handlers = [logging.StreamHandler(sys.stderr)]
    # A library that warns is no reason for a node to fall.
    warnings.resetwarnings()
    gc.enable()
    collect_seldom()


class _Line:
    """The child's end of its control socket."""

    def __init__(self, control: socket.socket) -> None:
        control.setblocking(False)
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(control))
        self._sending = trio.Lock()
        self._splitter = Splitter()
        self._waiting: list[bytes] = []

    async def receive(self) -> Command | None:
        """The next command; None when the parent is gone."""
        while not self._waiting:
            try:
                data = await self._stream.receive_some(_RECEIVE_BYTES)
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            self._waiting = self._splitter.feed(data)[::-1]
        return decode_command(self._waiting.pop())

    async def answer(self, answer: Answer) -> None:
        """Answer a command."""
        async with self._sending:
            await self._stream.send_all(encode(answer))


def output_of(home: Path) -> Path:
    """Where a node's output goes: beside its home, whose disk may be full."""
    return home.with_name(f"{home.name}.log")


async def _serve(control: socket.socket, plan: Plan, index: int, life: int, home: Path) -> None:
    line = _Line(control)
    opening = await line.receive()
    if not isinstance(opening, Open):
        return
    teller = plan.ledger.teller(index, plan.number_of)
    seat = Seat(
        index=index,
        size=plan.size,
        life=life,
        home=home,
        listen=opening.listen,
        bootstrap=opening.bootstrap,
        announce=opening.announce,
        dial_from=opening.dial_from,
        settings=plan.settings,
        deliver=lambda payload, reader=0: teller.deliver(payload, time.monotonic_ns(), reader),
    )
    async with plan.opener(seat) as contestant:
        await line.answer(Opened(opening.call, contestant.peer, list(contestant.addresses)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_meter, contestant, teller)
            while (command := await line.receive()) is not None:
                if isinstance(command, Stop):
                    break
                nursery.start_soon(_obey, command, contestant, plan.ledger, line)
            nursery.cancel_scope.cancel()
        teller.meter(*contestant.traffic())


async def _meter(contestant: Contestant, teller: Teller) -> None:
    while True:
        teller.meter(*contestant.traffic())
        await trio.sleep(METER_S)


async def _obey(command: Command, contestant: Contestant, ledger: Ledger, line: _Line) -> None:
    try:
        answer = await _carry_out(command, contestant, ledger)
    except (PulsarcastError, OSError, trio.TooSlowError) as error:
        answer = Failed(command.call, f"{type(error).__name__}: {error}")
    except Exception as error:  # stock libp2p raises exceptions of every kind
        traceback.print_exc()
        answer = Failed(command.call, f"{type(error).__name__}: {error}")
    await line.answer(answer)


async def _carry_out(command: Command, contestant: Contestant, ledger: Ledger) -> Answer:
    match command:
        case Publish(call, topic, payload, number, injection, ack):
            ledger.publish(number, time.monotonic_ns())
            receipt = await contestant.publish(Cid(topic), payload, injection=injection, ack=ack)
            return Published(call, receipt.event, receipt.replicas)
        case Subscribe(call, topic):
            await contestant.subscribe(Cid(topic))
            return Done(call)
        case CreateTopic(call, name, order, travel, named):
            sequencers = [PeerId(peer) for peer in named]
            return Created(call, await contestant.create_topic(name, order, travel, sequencers))
        case Join(call, addresses):
            await contestant.join(addresses)
            return Done(call)
        case Measure(call):
            traffic = contestant.traffic()
            return Measured(call, traffic.bytes_in, traffic.bytes_out, contestant.halted)
        case AskLead(call, topic):
            return Lead(call, contestant.term_led(Cid(topic)))
        case CreateRouted() | Follow() | SubscribeWhere() | PublishWith() | AskCounts():
            if not isinstance(contestant, Filtering):
                raise LocalError("this contestant does not route by content")
            return await _route(command, contestant, ledger)
        case Open(call) | Stop(call):
            return Failed(call, "the node is open already")
        case _ as unreachable:
            assert_never(unreachable)


async def _route(command: Routing, contestant: Filtering, ledger: Ledger) -> Answer:
    match command:
        case PublishWith(call, topic, payload, attributes, number, injection, ack):
            ledger.publish(number, time.monotonic_ns())
            receipt = await contestant.publish_with(
                Cid(topic), payload, attributes, injection=injection, ack=ack
            )
            return Published(call, receipt.event, receipt.replicas)
        case SubscribeWhere(call, topic, where, reader):
            return Subscribed(call, await contestant.subscribe_where(Cid(topic), where, reader))
        case CreateRouted(call, name, rules):
            return Created(call, await contestant.create_routed(name, rules))
        case Follow(call, topic):
            await contestant.follow(Cid(topic))
            return Done(call)
        case AskCounts(call):
            return Counts(call, dict(contestant.counted()))
        case _ as unreachable:
            assert_never(unreachable)
