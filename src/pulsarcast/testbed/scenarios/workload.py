"""The workload scenario: the thesis' evaluation on real nodes, with faults if wanted."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, cast

import msgspec

from pulsarcast.model.workload import Workload
from pulsarcast.simulation.applications import Applications
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.scenario_workload import read_workload
from pulsarcast.simulation.workload_driver import WorkloadDriver
from pulsarcast.testbed.contestants.contestants import Messages, Volume
from pulsarcast.testbed.faults import Faults
from pulsarcast.testbed.ledger import messages_since, percentile_ms, spread
from pulsarcast.testbed.options import Outcome, RunOptions
from pulsarcast.testbed.scenarios.compare import SETTLE_S, Progress, no_progress
from pulsarcast.testbed.sessions import Account, Session, Stalled, finish, open_session

NODES: Final = 100
PROGRESS_S: Final = 0.5
QUIET_S_MIN: Final = 1.0
"""How long a large network is left alone after each act, and then until it is quiet."""
QUIET_S_PER_NODE: Final = 0.02
"""A small one has less to do by itself, and is left alone for less."""
STALLED_S: Final = 60.0
"""How long nothing may come of what is still due before it counts as lost."""


class Summary(Outcome, kw_only=True):
    """What a run came to. The window is the load: from the first event until all came to rest."""

    strays: int = 0  # Runs of earlier versions do not say.
    contestant: str
    order: str
    dissemination: str = "tree"
    trace_level: str | None
    topics: int
    subscriptions: int
    events: int
    expected_due: int
    """Deliveries that the workload asks for where nothing is refused, a node's own included."""
    redeliveries: int
    """Given again to a later life of a node."""
    acknowledged: int
    levels: dict[str, int]
    refused: dict[str, int]
    dropped: int
    retries: int
    faults: dict[str, int]
    full_disk: str | None
    """What the node with the full disk said, where there was one."""
    refused_on_full_disk: str | None
    """What a caller was told who would have published there."""
    acknowledged_on_full_disk: int
    died: list[str]
    setup_s: float
    wall_s: float
    cpu_s: float
    setup_cpu_s: float
    cpu_ms_per_delivery: float
    bytes_in: int
    bytes_out: int
    bytes_per_delivery: float
    received_per_node: dict[str, float] | None = None
    """Messages of the protocol that a node received: how they spread; None: it does not count."""
    sent_per_node: dict[str, float] | None = None
    latency_ms_p50: float
    latency_ms_p99: float
    acknowledged_ms_p50: float
    """How long publishers waited for their acknowledgement, attempts that failed included."""
    acknowledged_ms_p99: float
    delay: str
    """How late what came in arrived, by the proxies."""
    proxies_cpu_s: float
    pss_mib: float
    trace_bytes: int


class _Payload(msgspec.Struct, rename="camel"):
    """What the workload driver publishes, as far as it matters here."""

    internal_id: int


_payload_decoder: Final = msgspec.json.Decoder(_Payload)


def number_of(payload: bytes) -> int:
    """Which event of the workload a payload belongs to."""
    try:
        return _payload_decoder.decode(payload).internal_id
    except msgspec.DecodeError:
        return -1


def run_workload(options: RunOptions, *, progress: Progress = no_progress) -> Summary:
    """Topics, subscriptions, events, as the thesis played them."""
    size = options.nodes or NODES
    workload = load_workload(options.workload, size, options)
    events = _last_number(workload) + 2  # one is spare: see `faults`
    with (
        Faults(options, size) as faults,
        open_session(
            options,
            size=size,
            events=events,
            number_of=number_of,
            needs_proxies="partition" in options.faults,
        ) as session,
    ):
        play = _Play(session, workload, faults, progress)
        play.set_up()
        play.load()
        summary = play.summary()
    summary.trace_bytes = session.trace_bytes()
    finish(options, summary)
    return summary


def load_workload(path: Path | None, size: int, options: RunOptions) -> Workload:
    """A workload's file, or one of its shape, made up."""
    source = Options(
        kind="workload",
        workload=None if path is None else str(path),
        seed=options.seed,
        events=options.events,
    )
    return read_workload(source, size)


class _Play:
    """One workload, played on one fleet."""

    def __init__(
        self, session: Session, workload: Workload, faults: Faults, progress: Progress
    ) -> None:
        options = session.options
        self._session = session
        self._fleet = session.fleet
        self._ledger = session.ledger
        self._faults = faults
        self._progress = progress
        self.callers = session.callers
        self.driver = WorkloadDriver(
            # It asks no more of applications than callers can do: see `callers`.
            cast(Applications, self.callers),
            workload,
            rng=Random(f"workload/{options.seed}"),
            order=options.order,
            dissemination=options.dissemination,
            events_max=options.events_max,
            replicated=options.ack == "replicated",
            concurrency=options.concurrency,
        )
        self._began_s = time.monotonic()
        self._setup_s = self._setup_cpu_s = 0.0
        self._wall_s = self._cpu_s = 0.0
        self._traffic = Volume(0, 0)
        self._messages: list[Messages] | None = None
        self._pss_bytes = 0
        self._proxies_cpu_s = 0.0

    def set_up(self) -> None:
        """Nodes, topics, subscriptions."""
        fleet, nodes = self._fleet, self._session.size
        quiet_s = min(QUIET_S_MIN, QUIET_S_PER_NODE * nodes)
        self._faults.prepare(fleet, self.driver)
        fleet.assemble(progress=lambda done: self._progress("nodes", done, nodes))
        fleet.wait_until_quiet(s_min=quiet_s)
        self.driver.create_topics()
        self._wait_for("create", lambda: len(self.driver.topics), len(self.driver.workload.topics))
        fleet.wait_until_quiet(s_min=quiet_s)
        self.driver.subscribe()
        self._wait_for(
            "subscribe", lambda: self.callers.subscribed, len(self.driver.subscriptions())
        )
        fleet.wait_until_quiet(s_min=quiet_s)
        self._setup_s = time.monotonic() - self._began_s
        self._setup_cpu_s = fleet.cpu_s()

    def load(self) -> None:
        """All events, and whatever they make nodes do; faults meanwhile."""
        fleet, ledger, driver = self._fleet, self._ledger, self.driver
        before, began_s = fleet.traffic(), time.monotonic()
        messages, cpu_s = fleet.messages(), fleet.cpu_s()
        self._faults.begin(self.callers, driver, spare_number=ledger.events - 1)
        driver.publish()
        self._wait_for("publish", lambda: driver.answered, driver.event_count)
        # Where nobody is hurt, this is so at once.
        fleet.run_until(self._faults.are_over, s_max=float("inf"))
        due = self._account().due
        stalled = Stalled(STALLED_S)

        def is_over() -> bool:
            delivered = ledger.deliveries
            self._progress("deliver", delivered, due)
            return delivered >= due or stalled.is_so(delivered)

        fleet.run_until(is_over, s_max=float("inf"), poll_s=PROGRESS_S)
        self._wall_s = time.monotonic() - began_s
        fleet.wait(SETTLE_S)
        self._cpu_s = fleet.cpu_s() - cpu_s
        after = fleet.traffic()
        self._traffic = Volume(after.bytes_in - before.bytes_in, after.bytes_out - before.bytes_out)
        self._messages = messages_since(messages, fleet.messages())
        self._pss_bytes = fleet.pss_bytes()
        self._proxies_cpu_s = 0.0 if fleet.proxies is None else fleet.proxies.cpu_s()

    def _wait_for(self, act: str, done: Callable[[], int], total: int) -> None:
        shown_s = 0.0

        def is_done() -> bool:
            nonlocal shown_s
            if time.monotonic() - shown_s >= PROGRESS_S:
                shown_s = time.monotonic()
                self._progress(act, done(), total)
            return self.driver.done(act)

        # Every command is answered, if only with the end of patience: this comes to an end.
        self._fleet.run_until(is_done, s_max=float("inf"))

    def _account(self) -> Account:
        driver = self.driver
        subscribers: dict[str, dict[int, None]] = {}
        for user in driver.workload.users:
            for name in user.subscriptions:
                subscribers.setdefault(name, {})[driver.node(user.node)] = None
        account = Account(self._ledger, self.callers.promised)
        for user in driver.workload.users:
            for event in user.events:
                account.enter(
                    event.internal_id,
                    author=driver.node(user.node),
                    subscribers=list(subscribers.get(event.topic, ())),
                )
        return account

    def summary(self) -> Summary:
        """What it came to."""
        options, driver, callers, ledger = (
            self._session.options,
            self.driver,
            self.callers,
            self._ledger,
        )
        account, expected = self._account(), driver.expected_due()
        faults = dict(sorted(callers.fleet.faults.items()))
        delivered = ledger.deliveries
        latencies = array("Q")
        everyone = range(self._session.size)
        for user in driver.workload.users:
            for event in user.events:
                latencies.extend(ledger.latencies_us(event.internal_id, everyone))
        latencies = array("Q", sorted(latencies))
        answered = array("Q", sorted(callers.answered_us))
        lost = account.due - account.delivered
        # A full disk that nobody notices shows nothing of what happens then.
        noticed = "full-disk" not in options.faults or self._faults.full_disk_said is not None
        # Only a fault excuses a node that refuses, and none excuses all of them.
        excused = account.due == expected or (bool(faults) and account.due > 0)
        return Summary(
            scenario=options.scenario,
            contestant=options.contestant,
            nodes=self._session.size,
            order=options.order,
            dissemination=options.dissemination,
            trace_level=options.trace_level,
            topics=len(driver.topics),
            subscriptions=len(driver.subscriptions()),
            events=driver.event_count,
            due=account.due,
            delivered=account.delivered,
            lost=lost,
            expected_due=expected,
            duplicates=ledger.duplicates,
            strays=ledger.strays,
            ok=not (lost or ledger.duplicates or ledger.strays or callers.promised_by_halted)
            and not self._session.died()
            and noticed
            and excused,
            redeliveries=ledger.redeliveries,
            acknowledged=callers.acknowledged,
            levels=dict(sorted(callers.levels.items())),
            refused=dict(sorted(callers.refused.items())),
            dropped=driver.dropped,
            retries=callers.retries,
            faults=faults,
            full_disk=self._faults.full_disk_said,
            refused_on_full_disk=self._faults.refused_on_full_disk,
            acknowledged_on_full_disk=callers.promised_by_halted,
            died=self._session.died(),
            setup_s=round(self._setup_s, 3),
            wall_s=round(self._wall_s, 3),
            cpu_s=round(self._cpu_s, 3),
            setup_cpu_s=round(self._setup_cpu_s, 3),
            cpu_ms_per_delivery=round(self._cpu_s * 1000 / max(1, delivered), 4),
            bytes_in=self._traffic.bytes_in,
            bytes_out=self._traffic.bytes_out,
            bytes_per_delivery=round(self._traffic.bytes_out / max(1, delivered), 1),
            received_per_node=spread([each.received for each in self._messages or ()]),
            sent_per_node=spread([each.sent for each in self._messages or ()]),
            latency_ms_p50=percentile_ms(latencies, 0.5),
            latency_ms_p99=percentile_ms(latencies, 0.99),
            acknowledged_ms_p50=percentile_ms(answered, 0.5),
            acknowledged_ms_p99=percentile_ms(answered, 0.99),
            delay="none" if options.delay is None else str(options.delay),
            proxies_cpu_s=round(self._proxies_cpu_s, 3),
            pss_mib=round(self._pss_bytes / 2**20, 1),
            trace_bytes=0,
        )


def _last_number(workload: Workload) -> int:
    return max((event.internal_id for user in workload.users for event in user.events), default=0)
