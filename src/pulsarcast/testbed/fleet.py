"""The fleet: one parent, a forked process for each node, and a loop that hears them all.

The parent imports everything first and freezes it, so a node costs the memory that it writes to:
4 MiB instead of 19. It has no threads and no event loop of a library, so it can fork at any time,
and a killed node can start again at its old place. It ends its nodes by process id on every way
out, and where it is killed itself, the kernel ends them.
"""

from __future__ import annotations

import gc
import heapq
import itertools
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, NamedTuple, NoReturn

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import PeerId
from pulsarcast.testbed import child, meters
from pulsarcast.testbed.contestants.contestants import Messages, Volume
from pulsarcast.testbed.limits import MemoryLimits
from pulsarcast.testbed.messages import (
    Answer,
    Command,
    Failed,
    Join,
    Measure,
    Measured,
    Open,
    Opened,
    Splitter,
    Stop,
    decode_answer,
    encode,
)
from pulsarcast.testbed.proxies import Proxies

LISTEN: Final = "/ip4/127.0.0.1/tcp/0"
PATIENCE_S: Final = 120.0
JOINING_S_MAX: Final = 360.0
"""A hundred nodes of a baseline that begin at once need minutes for their streams."""
QUIET_S_MAX: Final = 20.0
OPENING_AT_ONCE: Final = 10
CONTACTS: Final = 3
"""How many earlier nodes a new one may ask first, as in the simulator."""
_RECEIVE_BYTES: Final = 256 * 1024
_POLL_S: Final = 0.05
_REAP_S_MAX: Final = 5.0


class Death(NamedTuple):
    """A node process that ended."""

    node: int
    life: int
    how: str
    expected: bool
    by_limit: bool = False
    """Whether it took more memory than it was given."""


@dataclass
class _Process:
    """A node process as its parent knows it."""

    pid: int
    life: int
    control: socket.socket
    splitter: Splitter = field(default_factory=Splitter)
    unsent: bytearray = field(default_factory=bytearray)
    asked: dict[int, Callable[[Answer], None]] = field(default_factory=dict)
    ending: bool = False
    """Whether we told it to end, or killed it: then its death is no news."""


class Fleet:
    """The node processes of one run; use it as a context manager."""

    def __init__(
        self,
        plan: child.Plan,
        home: Path,
        proxies: Proxies | None = None,
        limits: MemoryLimits | None = None,
    ) -> None:
        self.size = plan.size
        self.home = home
        self.deaths: list[Death] = []
        self.peers: dict[int, PeerId] = {}
        self.addresses: dict[int, str] = {}
        self.proxies = proxies
        self.limits = limits
        self.is_ending = False
        """Whether all nodes were told to end: nobody is started again."""
        self._plan = plan
        self._processes: dict[int, _Process] = {}
        self._lives = [0] * plan.size
        self._ended_cpu_s = 0.0
        self._ended_traffic = Volume(0, 0)
        self._deadline_s = float("inf")
        self._calls = itertools.count(1)
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._on_death: list[Callable[[Death], None]] = []
        self._previous_handler: object = None

    # Beginning and end.

    def __enter__(self) -> Fleet:
        gc.collect()
        gc.freeze()
        if threading.current_thread() is threading.main_thread():
            self._previous_handler = signal.signal(signal.SIGTERM, _leave)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            for index in list(self._processes):
                self.kill(index)
            self._selector.close()
        finally:
            gc.unfreeze()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, self._previous_handler or signal.SIG_DFL)  # type: ignore[arg-type] # what signal() gave us

    def home_of(self, index: int) -> Path:
        """The folder of a node, the same in all of its lives."""
        return self.home / f"node-{index:03}"

    def fork(self, index: int) -> None:
        """Start the process of a node, which does nothing until it is told to open."""
        assert index not in self._processes, f"node {index} runs"
        home = self.home_of(index)
        home.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair()
        self._lives[index] += 1
        life, parent = self._lives[index], os.getpid()
        pid = os.fork()
        if not pid:
            child.run(self._plan, index=index, life=life, home=home, control=theirs, parent=parent)
        theirs.close()
        if self.limits is not None:
            self.limits.admit(index, pid)  # it takes next to nothing before it is told to open
        ours.setblocking(False)
        process = self._processes[index] = _Process(pid, life, ours)
        self._selector.register(ours, selectors.EVENT_READ, (index, process))

    def assemble(self, *, progress: Callable[[int], None] | None = None) -> None:
        """Fork all nodes, open them, and join everyone to the network."""
        for index in range(self.size):
            self.fork(index)
        opened = 0

        def one_more(index: int, answer: Answer) -> None:
            nonlocal opened
            opened += 1
            if progress is not None:
                progress(opened)

        # The first alone: everyone else needs somebody to ask.
        for batch in ([0], range(1, self.size)):
            self.expect(self.each(batch, self._opening, at_once=OPENING_AT_ONCE, then=one_more))
        self.join_all()

    def restart(self, index: int, then: Callable[[Answer], None]) -> None:
        """Start a node again where it was, in its old home."""
        self.fork(index)

        def opened(answer: Answer) -> None:
            if isinstance(answer, Opened):
                addresses = [self.addresses[i] for i in range(self.size) if i in self.addresses]
                self.ask(index, lambda call: Join(call, addresses), then)
            else:
                then(answer)

        self._open(index, opened)

    def join_all(self) -> None:
        """Tell everyone about everyone."""
        addresses = [self.addresses[index] for index in range(self.size)]
        joined = self.each(
            self.living(),
            lambda index: lambda call: Join(call, addresses),
            patience_s=JOINING_S_MAX,
        )
        self.expect(joined)

    def stop_all(self, *, s_max: float = 30.0) -> None:
        """Let all nodes end in good order; who does not in time is killed."""
        self.is_ending = True
        for index, process in list(self._processes.items()):
            process.ending = True
            self._resume(process)
            self._send(index, process, Stop(next(self._calls)))
        self.run_until(lambda: not self._processes, s_max=s_max)
        for index in list(self._processes):
            self.kill(index)

    def stop(self, index: int, *, s_max: float = 30.0) -> None:
        """Let a node end in good order; if it does not in time, it is killed."""
        process = self._processes[index]
        process.ending = True
        self._send(index, process, Stop(next(self._calls)))

        def insist() -> None:
            if self._processes.get(index) is process:
                self.kill(index)

        self.after(s_max, insist)

    # Asking.

    def ask(
        self,
        index: int,
        make: Callable[[int], Command],
        then: Callable[[Answer], None],
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Give a node a command; `then` hears its answer, or why there is none."""
        process = self._processes.get(index)
        call = next(self._calls)
        if process is None:
            self.after(0, lambda: then(Failed(call, f"node {index} does not run")))
            return
        process.asked[call] = then
        self._send(index, process, make(call))

        def give_up() -> None:
            waiting = process.asked.pop(call, None)
            if waiting is not None:
                waiting(Failed(call, f"node {index} did not answer in {patience_s:.0f} s"))

        self.after(patience_s, give_up)

    def each(
        self,
        indices: Iterable[int],
        make: Callable[[int], Callable[[int], Command]],
        *,
        at_once: int | None = None,
        then: Callable[[int, Answer], None] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> dict[int, Answer]:
        """Give each node a command, so many at once, and wait for all answers."""
        waiting = list(indices)[::-1]
        wanted = len(waiting)
        answers: dict[int, Answer] = {}

        def give() -> None:
            index = waiting.pop()

            def answered(answer: Answer) -> None:
                if isinstance(answer, Opened):
                    self._welcome(index, answer)
                answers[index] = answer
                if then is not None:
                    then(index, answer)
                if waiting:
                    give()

            self.ask(index, make(index), answered, patience_s=patience_s)

        for _ in range(min(at_once or wanted, wanted)):
            give()
        self.run_until(lambda: len(answers) == wanted, s_max=float("inf"))
        return answers

    def expect(self, answers: dict[int, Answer]) -> None:
        """Raise if a node could not do what the run needs."""
        for index, answer in answers.items():
            if isinstance(answer, Failed):
                raise LocalError(f"node {index}: {answer.error}{self._last_words(index)}")

    def watch(self, file: socket.socket, act: Callable[[], None] | None) -> None:
        """Have something done whenever there is something to read from a socket; None ends it."""
        if act is None:
            self._selector.unregister(file)
        else:
            self._selector.register(file, selectors.EVENT_READ, act)

    def on_death(self, act: Callable[[Death], None]) -> None:
        """Be told of every process that ends."""
        self._on_death.append(act)

    # Time.

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Do something later."""
        heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._calls), act))

    def must_end_within(self, s: float) -> None:
        """Whoever waits for longer than this is told that it takes too long."""
        self._deadline_s = time.monotonic() + s

    def run_until(self, done: Callable[[], bool], *, s_max: float, poll_s: float = _POLL_S) -> bool:
        """Hear nodes and pull timers until it is done, or it takes too long."""
        deadline_s = time.monotonic() + s_max
        while not done():
            now_s = time.monotonic()
            if now_s >= deadline_s:
                return False
            if now_s >= self._deadline_s:
                raise LocalError("the run takes longer than it was given (--timeout-s)")
            self._turn(min(poll_s, deadline_s - now_s))
        return True

    def wait(self, s: float) -> None:
        """Let time pass."""
        self.run_until(lambda: False, s_max=s)

    def wait_until_quiet(self, *, s_min: float) -> None:
        """Let time pass until all nodes together use hardly any processor time, or give up."""
        cores_max = max(0.1, 0.003 * self.size)  # heartbeats never rest
        self.wait(s_min)
        deadline_s = time.monotonic() + QUIET_S_MAX
        while time.monotonic() < deadline_s:
            before, began_s = self.cpu_s(), time.monotonic()
            self.wait(0.5)
            if self.cpu_s() - before < cores_max * (time.monotonic() - began_s):
                return

    # Faults.

    def kill(self, index: int) -> None:
        """SIGKILL."""
        process = self._processes.get(index)
        if process is not None:
            process.ending = True
            os.kill(process.pid, signal.SIGKILL)
            self._bury(index, process)

    def pause(self, index: int) -> None:
        """SIGSTOP."""
        os.kill(self._processes[index].pid, signal.SIGSTOP)

    def resume(self, index: int) -> None:
        """SIGCONT."""
        self._resume(self._processes[index])

    # Looking.

    def living(self) -> list[int]:
        """Nodes whose process runs."""
        return sorted(self._processes)

    def is_up(self, index: int) -> bool:
        """Whether a node's process runs."""
        return index in self._processes

    def pid(self, index: int) -> int:
        """The process of a node that runs."""
        return self._processes[index].pid

    def life(self, index: int) -> int:
        """How many times a node was started."""
        return self._lives[index]

    def cpu_s(self) -> float:
        """Processor time of all nodes so far, the dead included."""
        living = sum(meters.cpu_s(process.pid) for process in self._processes.values())
        return living + self._ended_cpu_s

    def pss_bytes(self) -> int:
        """Memory of all nodes that run, what they share counted once."""
        return sum(meters.pss_bytes(process.pid) for process in self._processes.values())

    def traffic(self) -> Volume:
        """Bytes at the sockets of all nodes so far; of a dead one, what it last said."""
        bytes_in, bytes_out = self._ended_traffic
        for index, answer in self.each(self.living(), lambda index: Measure).items():
            if isinstance(answer, Measured):
                bytes_in += answer.bytes_in
                bytes_out += answer.bytes_out
            elif self.is_up(index):
                said = self._plan.ledger.metered(index)
                bytes_in += said[0]
                bytes_out += said[1]
        return Volume(bytes_in, bytes_out)

    def messages(self) -> list[Messages] | None:
        """Of each node, the dead included, as it last said; None where nodes cannot tell."""
        told = [self._plan.ledger.messages(index) for index in range(self.size)]
        counted = [each for each in told if each is not None]
        return counted if len(counted) == len(told) else None

    def unexpected_deaths(self) -> list[Death]:
        """Who ended without having been told to."""
        return [death for death in self.deaths if not death.expected]

    # Inside.

    def _open(self, index: int, then: Callable[[Answer], None]) -> None:
        def opened(answer: Answer) -> None:
            if isinstance(answer, Opened):
                self._welcome(index, answer)
            then(answer)

        self.ask(index, self._opening(index), opened)

    def _opening(self, index: int) -> Callable[[int], Command]:
        known = [address for other, address in self.addresses.items() if other != index]
        # Different ones for each, so that nobody has to know everyone.
        contacts = [known[(index * CONTACTS + i) % len(known)] for i in range(CONTACTS) if known]
        bootstrap = list(dict.fromkeys(contacts))
        proxies = self.proxies
        if proxies is not None:
            place = (proxies.listen(index), bootstrap, [proxies.announce(index)])
            return lambda call: Open(call, *place, proxies.dial_from(index))
        # A node that starts again is where it was.
        listen = self.addresses.get(index, LISTEN).partition("/p2p/")[0]
        return lambda call: Open(call, listen, bootstrap)

    def _welcome(self, index: int, opened: Opened) -> None:
        self.peers[index] = PeerId(opened.peer)
        address = opened.addresses[0]
        self.addresses[index] = address if self.proxies is None else self.proxies.outer(address)

    def _send(self, index: int, process: _Process, command: Command) -> None:
        process.unsent += encode(command)
        self._flush(index, process)

    def _flush(self, index: int, process: _Process) -> None:
        try:
            while process.unsent:
                sent = process.control.send(process.unsent)
                del process.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            process.unsent.clear()  # it is gone: reading will tell
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if process.unsent else 0)
        self._selector.modify(process.control, events, (index, process))

    def _turn(self, s_max: float) -> None:
        if self._timers:
            s_max = max(0.0, min(s_max, self._timers[0][0] - time.monotonic()))
        for key, events in self._selector.select(s_max):
            if callable(key.data):
                key.data()
                continue
            data: tuple[int, _Process] = key.data
            index, process = data
            if self._processes.get(index) is not process:
                continue  # buried earlier in this turn
            if events & selectors.EVENT_WRITE:
                self._flush(index, process)
            if events & selectors.EVENT_READ:
                self._hear(index, process)
        now_s = time.monotonic()
        while self._timers and self._timers[0][0] <= now_s:
            heapq.heappop(self._timers)[2]()

    def _hear(self, index: int, process: _Process) -> None:
        try:
            data = process.control.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._bury(index, process)
            return
        for body in process.splitter.feed(data):
            answer = decode_answer(body)
            then = process.asked.pop(answer.call, None)
            if then is not None:
                then(answer)

    def _bury(self, index: int, process: _Process) -> None:
        """A process ended: note how, and tell everyone who waits for it."""
        self._selector.unregister(process.control)
        process.control.close()
        del self._processes[index]
        status, cpu_s = _reap(process.pid)
        self._ended_cpu_s += cpu_s
        told = self._plan.ledger.end_life(index)
        ended = self._ended_traffic
        self._ended_traffic = Volume(ended.bytes_in + told[0], ended.bytes_out + told[1])
        how = _how_it_ended(status)
        by_limit = self.limits is not None and self.limits.has_killed(index)
        if self.limits is not None and by_limit:
            how += f", over its limit of {self.limits.mib} MiB"
        death = Death(index, process.life, how, process.ending and not by_limit, by_limit)
        self.deaths.append(death)
        asked, process.asked = process.asked, {}
        for call, then in asked.items():
            then(Failed(call, f"node {index} ended: {how}"))
        for act in self._on_death:
            act(death)

    def _resume(self, process: _Process) -> None:
        os.kill(process.pid, signal.SIGCONT)

    def _last_words(self, index: int) -> str:
        output = child.output_of(self.home_of(index))
        said = output.read_text(errors="replace").strip() if output.is_file() else ""
        return f"\n{said[-2000:]}" if said else ""


def _reap(pid: int) -> tuple[int, float]:
    """How a process ended, and the processor time that it used; it is killed if it lingers."""
    deadline_s = time.monotonic() + _REAP_S_MAX
    while True:
        ended, status, used = os.wait4(pid, os.WNOHANG)
        if ended:
            return status, used.ru_utime + used.ru_stime
        if time.monotonic() >= deadline_s:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def _how_it_ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM takes the way out that everything else takes."""
    raise SystemExit(128 + number)
