"""A session: the fleet of one run with its ledger, callers, traces and folders, from start to end.

OUT/traces        the trace of every node, and the load driver's
OUT/nodes         the homes of the nodes, and beside each what its process said
OUT/summary.json  what the run came to
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import peer_text
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.storage.segments import close_left_open
from pulsarcast.testbed.callers import Callers, DriverTrace
from pulsarcast.testbed.child import Plan
from pulsarcast.testbed.contestants.contestants import Settings, load
from pulsarcast.testbed.fleet import Death, Fleet
from pulsarcast.testbed.ledger import Ledger
from pulsarcast.testbed.limits import limits_for
from pulsarcast.testbed.options import Outcome, RunOptions
from pulsarcast.testbed.proxies import Delay, Proxies

TRACES: Final = "traces"
NODES: Final = "nodes"
SUMMARY: Final = "summary.json"
STOP_S_MAX: Final = 120.0


@dataclass(frozen=True)
class Session:
    """What a scenario plays with."""

    options: RunOptions
    size: int
    fleet: Fleet
    ledger: Ledger
    callers: Callers
    traces: Path

    def died(self) -> list[str]:
        """Who ended without having been told to."""
        return [f"node {d.node}: {d.how}" for d in self.fleet.unexpected_deaths()]

    def trace_bytes(self) -> int:
        """What the traces take, those of open segments included."""
        return sum(path.stat().st_size for path in self.traces.iterdir())


@contextmanager
def open_session(
    options: RunOptions,
    *,
    size: int,
    events: int,
    number_of: Callable[[bytes], int],
    rpc_traced: Iterable[int] = (),
    needs_proxies: bool = False,
    ordered: bool = False,
    readers: int = 1,
) -> Iterator[Session]:
    """Make the folders and a fleet that has yet to be assembled; at the end, stop all nodes.

    `events` is how many the ledger has room for, which knows their order if it is `ordered`, and
    has a column for each of so many `readers` of a node. There are proxies in front of the nodes
    where something is delayed, or a fault needs them.
    """
    opener = load(options.contestant)
    traces = prepare(options.out)
    run_id = options.name_of_run()
    ledger = Ledger(nodes=size, events=events, ordered=ordered, readers=readers)
    plan = Plan(
        opener=opener,
        size=size,
        settings=Settings(
            seed=options.seed,
            trace_level=options.trace_level,
            rpc_traced=frozenset(rpc_traced),
            trace_folder=traces,
            run_id=run_id,
            parameters=options.parameters(),
        ),
        ledger=ledger,
        number_of=number_of,
    )
    account = DriverTrace(traces, run_id)
    try:
        with ExitStack() as stack:
            proxies = None
            if options.delay is not None or needs_proxies:
                given = Proxies(size, options.delay or Delay(), seed=options.seed)
                proxies = stack.enter_context(given)
            wanted = limits_for(options)
            limits = None if wanted is None else stack.enter_context(wanted)
            homes = (options.out / NODES).absolute()
            fleet = stack.enter_context(Fleet(plan, homes, proxies, limits))
            fleet.must_end_within(options.timeout_s)
            callers = Callers(fleet, replicas=Parameters().replicas, note=account.write)
            fleet.on_death(partial(_tell_of_limit, fleet, callers))
            yield Session(options, size, fleet, ledger, callers, traces)
            # A node that is killed now would seem to have been lost unnoticed.
            fleet.stop_all(s_max=STOP_S_MAX)
    finally:
        account.close()
    for peer in fleet.peers.values():
        close_left_open(traces, peer_text(peer))


def _tell_of_limit(fleet: Fleet, callers: Callers, death: Death) -> None:
    """Whom its limit killed, we killed: the checker must know."""
    if death.by_limit and death.node in fleet.peers:  # or it never was anybody
        callers.fleet.tell("kill", death.node, "its memory limit")


def finish(options: RunOptions, outcome: Outcome) -> None:
    """Write the summary, and clear away what nobody needs: if all went well, the homes."""
    (options.out / SUMMARY).write_text(outcome.to_json() + "\n")
    if outcome.ok and not options.keep_homes:
        shutil.rmtree(options.out / NODES)


def prepare(out: Path) -> Path:
    """The folder for traces; what an earlier run left there would be taken for this one's."""
    traces = out / TRACES
    for folder in (traces, out / NODES):
        if folder.is_dir() and any(folder.iterdir()):
            raise LocalError(f"{folder} is not empty: choose another folder, or remove {out}")
        folder.mkdir(parents=True, exist_ok=True)
    return traces.absolute()


class Stalled:
    """Whether a count has not grown for too long."""

    def __init__(self, s_max: float) -> None:
        self._s_max = s_max
        self._count = -1
        self._grew_s = time.monotonic()

    def is_so(self, count: int) -> bool:
        """Take the count of now."""
        if count != self._count:
            self._count, self._grew_s = count, time.monotonic()
        return time.monotonic() - self._grew_s >= self._s_max


class Account:
    """What was due, to whom, and who got it (docs/guides/testbed.md).

    Due is what was acknowledged; and what somebody other than its author got, since it was
    published then. What was refused, and never seen elsewhere, is due to nobody.
    """

    def __init__(self, ledger: Ledger, promised: set[int]) -> None:
        self.due = 0
        self.delivered = 0
        self.missing: dict[int, list[int]] = {}
        """Events, and who lacks them."""
        self.not_published: list[int] = []
        """Events that are due to nobody."""
        self._ledger = ledger
        self._promised = promised

    def enter(self, number: int, *, author: int, subscribers: list[int]) -> None:
        """Take one event, with those who subscribed to its topic."""
        missing = self._ledger.missing(number, subscribers)
        if number not in self._promised:
            got_by = [node for node in subscribers if node != author and node not in missing]
            if not got_by:
                self.not_published.append(number)
                return
        self.due += len(subscribers)
        self.delivered += len(subscribers) - len(missing)
        if missing:
            self.missing[number] = missing
