"""Results: what a run came to, in figures that fit on one line of JSON."""

from __future__ import annotations

import msgspec

ORDER_KINDS = (
    "order",
    "fork",
    "chain",
    "equivocation",
    "causal_order",
    "causal_parents",
)


class Result(msgspec.Struct, kw_only=True):
    """One run. Coverage is integers; a percentage is only how it is shown."""

    scenario: str
    seed: int
    nodes: int = 0
    order: str = ""
    faults: dict[str, int] = {}
    ok: bool = True
    # The promises.
    due: int = 0
    delivered: int = 0
    undecided: int = 0
    duplicates: int = 0
    order_violations: int = 0
    lost_acknowledged: int = 0
    unacknowledged_lost: int = 0
    retired: int = 0
    findings: dict[str, int] = {}
    details: list[str] = []
    # The load.
    topics: int = 0
    subscriptions: int = 0
    events: int = 0
    acknowledged: int = 0
    levels: dict[str, int] = {}
    refused: dict[str, int] = {}
    dropped: int = 0
    retries: int = 0
    expected_due: int | None = None
    redeliveries: int = 0
    # The cost, from the first event on. Deliveries here are those of others' events.
    messages_per_delivery: float = 0.0
    """Event messages, events in ranges, and requests to publish; the DHT apart."""
    bytes_per_delivery: float = 0.0
    all_bytes_per_delivery: float = 0.0
    messages_per_write: float = 0.0
    """Messages of all kinds that leave for one peer in one piece."""
    dht_messages: int = 0
    all_messages: int = 0
    messages: dict[str, int] = {}
    messages_lost: int = 0
    hops_mean: float = 0.0
    hops_max: int = 0
    fanout_max: int = 0
    latency_p50_s: float = 0.0
    latency_p99_s: float = 0.0
    footprint_max: dict[str, int] = {}
    # How it went.
    counts: dict[str, int] = {}
    """The core's own: how often each way of recovery was taken."""
    gaps_found: int = 0
    gaps_filled: int = 0
    rejections: dict[str, int] = {}
    settled: bool = True
    sim_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    messages_per_s: float = 0.0
    rss_mb: float = 0.0
    shared_verification: bool = True
    through_wire: bool = False
    replay: str = ""
    table: list[tuple[str, str, str]] = []
    """Figures that only this scenario has: what it is, ours, and the paper's."""

    def to_json(self) -> str:
        """One line."""
        return msgspec.json.encode(self).decode()

    def to_text(self) -> str:
        """Some lines, for people."""
        share = f" ({self.delivered / self.due:.4%})" if self.due else ""
        subject = f"{self.nodes} nodes, {self.topics} topics, {self.subscriptions} subscriptions"
        broken = f"duplicates {self.duplicates}; order violations {self.order_violations}"
        bytes_ = f"{self.bytes_per_delivery:.0f} B, {self.all_bytes_per_delivery:.0f} B with upkeep"
        hops = f"{self.hops_mean:.2f} mean, {self.hops_max} max; fan-out {self.fanout_max} max"
        work = f"{self.all_messages:,} messages, {self.messages_per_s:,.0f} a second"
        if self.table:
            return self._table_text(subject)
        lines = [
            f"{self.scenario}, seed {self.seed}: {subject}, {self.events} events",
            f"  delivered     {self.delivered:,} of {self.due:,} due{share}",
            f"  undecided     {self.undecided:,}; {broken}",
            f"  lost          {self.lost_acknowledged} of {self.acknowledged} acknowledged",
            f"  per delivery  {self.messages_per_delivery:.3f} messages, {bytes_}",
            f"  hops          {hops}",
            f"  latency       {self.latency_p50_s:.2f} s p50, {self.latency_p99_s:.2f} s p99",
            f"  simulated     {self.sim_s:,.0f} s in {self.wall_s:,.1f} s: {work}",
            f"  memory        {self.rss_mb:.0f} MB",
        ]
        if self.faults:
            lines.append("  faults        " + _pairs(self.faults))
        if self.counts:
            lines.append("  recovery      " + _pairs(self.counts))
        if not self.settled:
            lines.append("  did not settle in time")
        if not self.ok:
            lines.append("  objections    " + _pairs(self.findings))
            lines += [f"    {detail}" for detail in self.details]
            lines.append(f"  again with    {self.replay}")
        return "\n".join(lines)

    def _table_text(self, subject: str) -> str:
        names = max(len(name) for name, _, _ in self.table)
        ours = max(len(value) for _, value, _ in self.table)
        lines = [f"{self.scenario}, seed {self.seed}: {subject}, {self.events} events"]
        lines += [
            f"  {name:{names}}  {value:{ours}}  {theirs and 'thesis: ' + theirs}".rstrip()
            for name, value, theirs in self.table
        ]
        if self.faults:
            lines.append("  faults        " + _pairs(self.faults))
        if not self.ok:
            lines.append("  objections    " + _pairs(self.findings))
            lines += [f"    {detail}" for detail in self.details]
            lines.append(f"  again with    {self.replay}")
        return "\n".join(lines)


def _pairs(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
