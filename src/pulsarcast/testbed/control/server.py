"""The process behind `testbed up`: owns a fleet and does what commands ask, until told to end.

It is one loop, the fleet's, which hears nodes and commands alike. Where it is killed, the kernel
ends its nodes with it; `SIGTERM` is taken for `testbed down`.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, Final, assert_never

import msgspec

from pulsarcast.model.errors import LocalError
from pulsarcast.model.workload import Workload
from pulsarcast.testbed.control.acts import Acts
from pulsarcast.testbed.control.book import ROOM_MIN, Book
from pulsarcast.testbed.control.faults import HandFaults
from pulsarcast.testbed.control.load import Playing
from pulsarcast.testbed.control.messages import (
    SOCKET,
    Answer,
    Do,
    End,
    Going,
    Hit,
    Play,
    Refused,
    Reported,
    Request,
    Status,
    decode_request,
    encode,
    listen_in,
)
from pulsarcast.testbed.options import Outcome
from pulsarcast.testbed.scenario_files import FILE, options_for
from pulsarcast.testbed.scenarios.workload import NODES, load_workload, number_of
from pulsarcast.testbed.sessions import Session, Stalled, finish, open_session

WITHOUT_LIMITS: Final = "--without-limits"
REQUEST_BYTES_MAX: Final = 1 << 20
POLL_S: Final = 0.1
ROOM_FACTOR: Final = 10
"""How often a workload can be played before the ledger is full."""
STOP_S_MAX: Final = 600.0
MIB: Final = 2**20


class ControlOutcome(Outcome, kw_only=True):
    """What a testbed came to that was led by hand."""

    undecided: int
    """What those lack who were down or paused at the end."""
    ended_by: str
    up_s: float
    events: int
    acknowledged: int
    refused: dict[str, int]
    redeliveries: int
    faults: dict[str, int]
    died: list[str]
    cpu_s: float
    bytes_in: int
    bytes_out: int
    pss_mib: float


def serve(out: Path, *, without_limits: bool = False) -> Outcome:
    """Run the testbed of a folder, whose scenario is there, to its end."""
    options = options_for(str(out / FILE), out=out, said={"without_limits": without_limits})
    size = options.nodes or NODES
    workload = load_workload(options.workload, size, options)
    events = sum(len(user.events) for user in workload.users)
    listener = listen_in(out)
    try:
        with open_session(
            options,
            size=size,
            events=max(ROOM_MIN, ROOM_FACTOR * events),
            number_of=number_of,
            needs_proxies=options.contestant == "ours",
        ) as session:
            server = _Server(session, workload, listener)
            ended_by = server.run()
            outcome = server.outcome(ended_by)
            session.fleet.must_end_within(STOP_S_MAX)
        finish(options, outcome)
        server.say_goodbye(outcome)
    finally:
        (out / SOCKET).unlink(missing_ok=True)
        listener.close()
    return outcome


class _Server:
    """One testbed, and those who talk to it."""

    def __init__(self, session: Session, workload: Workload, listener: socket.socket) -> None:
        self._session = session
        self._fleet = session.fleet
        self._workload = workload
        self._listener = listener
        self._phase = "starting"
        self._began_s = time.monotonic()
        self._book = Book(session.ledger, session.callers)
        self._faults = HandFaults(session)
        self._acts = Acts(session, self._book, self._faults.state_of)
        self._playing: Playing | None = None
        self._waiting: list[_Line] = []
        """Who asked for the end."""
        self._over = False

    def run(self) -> str:
        """Start the nodes, do what is asked; returns why it ended."""
        options, fleet = self._session.options, self._fleet
        fleet.watch(self._listener, self._accept)
        try:
            fleet.assemble()
            fleet.wait_until_quiet(s_min=1.0)
            self._phase = "up"
            fleet.must_end_within(float("inf"))
            in_time = fleet.run_until(lambda: self._over, s_max=options.timeout_s)
        except SystemExit:
            if self._phase == "starting":
                raise  # nothing was played: there is nothing to sum up
            return "SIGTERM"
        finally:
            self._phase = "ending"
        return "testbed down" if in_time else "timeout_s"

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        line = _Line(connection)

        def hear() -> None:
            requests = line.receive()
            for request in requests or ():
                self._handle(request, line)
            if requests is None:
                self._fleet.watch(connection, None)
                connection.close()

        self._fleet.watch(connection, hear)

    def _handle(self, text: bytes, line: _Line) -> None:
        try:
            self._obey(decode_request(text), line)
        except (LocalError, msgspec.DecodeError) as error:
            line.tell(Refused(str(error)))

    def _obey(self, request: Request, line: _Line) -> None:
        if self._phase != "up" and not isinstance(request, Status):
            raise LocalError(f"the testbed is {self._phase}")
        match request:
            case Status():
                line.tell(self._status())
            case Do():
                self._acts.do(request, line.tell)
            case Hit():
                self._faults.hit(request, line.tell)
            case Play():
                self._play(request, line)
            case End(settle_s):
                self._waiting.append(line)
                self._settle(Stalled(settle_s))
            case _ as unreachable:
                assert_never(unreachable)

    def _play(self, request: Play, line: _Line) -> None:
        if self._playing is not None and not self._playing.is_over:
            raise LocalError("a load is being played")
        self._playing = Playing(
            self._session,
            self._book,
            self._workload,
            request,
            absent=self._faults.absent,
            tell=line.tell,
        )
        self._playing.begin()

    def _settle(self, stalled: Stalled) -> None:
        """End when all has come, or nothing comes any more."""
        standing = self._book.standing(self._faults.absent())
        if not standing.lost or stalled.is_so(standing.delivered):
            self._over = True
            return
        for line in self._waiting:
            line.tell(Going("deliver", standing.delivered, standing.due))
        self._fleet.after(POLL_S, lambda: self._settle(stalled))

    # What it says of itself.

    def _status(self) -> Reported:
        session, book = self._session, self._book
        states = [self._faults.state_of(index) for index in range(session.size)]
        facts: dict[str, Any] = {
            "phase": self._phase,
            "pid": os.getpid(),
            "up_s": round(time.monotonic() - self._began_s, 1),
            "nodes": session.size,
            "opened": len(self._fleet.peers),
            "up": states.count("up"),
            "away": {str(i): state for i, state in enumerate(states) if state != "up"},
            "cut": self._faults.cut,
            "latency": self._faults.latency,
            "memory_mib": session.options.memory_mib if self._fleet.limits else None,
            "topics": list(book.topics),
            "subscriptions": book.subscriptions,
            "events": book.events,
            "acknowledged": session.callers.acknowledged,
            **book.standing(self._faults.absent()).facts(),
            "duplicates": session.ledger.duplicates,
            "strays": session.ledger.strays,
            "faults": dict(session.callers.fleet.faults),
            "died": session.died(),
            "load": "playing" if self._playing and not self._playing.is_over else None,
        }
        return Reported(facts)

    def outcome(self, ended_by: str) -> ControlOutcome:
        """What it came to, before the nodes are stopped."""
        session, fleet, callers = self._session, self._fleet, self._session.callers
        standing, duplicates = self._book.standing(self._faults.absent()), session.ledger.duplicates
        pss_bytes = fleet.pss_bytes()
        for index in list(self._faults.paused):
            fleet.resume(index)
        traffic = fleet.traffic()
        return ControlOutcome(
            scenario=session.options.name_of_run(),
            nodes=session.size,
            due=standing.due,
            delivered=standing.delivered,
            undecided=standing.undecided,
            lost=standing.lost,
            duplicates=duplicates,
            strays=session.ledger.strays,
            ok=not (standing.lost or duplicates or session.ledger.strays or session.died())
            and (not callers.refused or bool(callers.fleet.faults)),
            ended_by=ended_by,
            up_s=round(time.monotonic() - self._began_s, 1),
            events=self._book.events,
            acknowledged=callers.acknowledged,
            refused=dict(callers.refused),
            redeliveries=session.ledger.redeliveries,
            faults=dict(sorted(callers.fleet.faults.items())),
            died=session.died(),
            cpu_s=round(fleet.cpu_s(), 3),
            bytes_in=traffic.bytes_in,
            bytes_out=traffic.bytes_out,
            pss_mib=round(pss_bytes / MIB, 1),
        )

    def say_goodbye(self, outcome: Outcome) -> None:
        """Everything is stopped and written: tell those who asked for it."""
        facts = msgspec.to_builtins(outcome)
        for line in self._waiting:
            line.tell(Reported(facts, ok=outcome.ok))


class _Line:
    """Somebody who asks, one line at a time."""

    def __init__(self, connection: socket.socket) -> None:
        # What we say is short, and they wait for it: they get a second to take it.
        connection.settimeout(1.0)
        self._connection = connection
        self._held = b""
        self._is_deaf = False

    def receive(self) -> list[bytes] | None:
        """Lines that are whole now; None when nobody is there any more."""
        try:
            data = self._connection.recv(1 << 16)
        except OSError:
            data = b""
        if not data or len(self._held) > REQUEST_BYTES_MAX:
            return None
        *lines, self._held = (self._held + data).split(b"\n")
        return lines

    def tell(self, answer: Answer) -> None:
        """Say something; what is begun goes on where nobody hears it."""
        if self._is_deaf:
            return
        try:
            self._connection.sendall(encode(answer))
        except OSError:
            self._is_deaf = True


if __name__ == "__main__":
    serve(Path(sys.argv[1]), without_limits=WITHOUT_LIMITS in sys.argv)
