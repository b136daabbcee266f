"""Random runs of sequencers: clients ask all the time, and everything breaks that may.

Of 2f+1 sequencers at most f are without their store at a time; kills, pauses and cuts may hit any
number. Whenever enough of them can talk for ten election timeouts, something must get its place.
In the end everything heals, and every client must have its answer.
"""

from __future__ import annotations

import time
from random import Random

from pulsarcast.model import trace
from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import peer_text
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.sequencing.sequencer import Sequencer
from pulsarcast.protocol.sequencing.syncing import Syncing
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.sabotage import find
from pulsarcast.simulation.sequencers.group import Group, Peer
from pulsarcast.simulation.tracing import TraceWriter, open_trace, write_result

TIMEOUT_S = 1.0
TIMEOUTS_MAX = 10
"""How many election timeouts a group that can talk may take to make progress."""
LOOK_S = 0.25
PARTS = {Sequencer, Syncing}
"""The parts that safeguards of sequencers replace."""
AMBUSH_SHARE = 0.3
"""Seeds that wait for a leader to be elected, and then break what it stands on."""
CHANGING_SHARE = 0.4
"""Seeds whose author names other sequencers now and then."""
SEQUENCERS = (1, 2, 3, 3, 4, 5, 5, 6, 7)
"""How many an author names."""


def run_sequencers(options: Options) -> Result:
    """Play one seed."""
    if options.without is not None and PARTS.isdisjoint(find(options.without).parts):
        raise LocalError(f"sequencers alone have no {options.without} to go without")
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    tracer = open_trace(options, lambda index: peer_text(play.group.peers[index].id))
    play = _Play(options.seed, options.without, tracer)
    play.run()
    if tracer is not None:
        for peer in play.group.peers:
            if peer.up:
                play.group.note(peer, trace.NodeStopped("the run ended"))
        tracer.close()
    group, checkers = play.group, play.group.checkers
    findings = checkers.findings
    cpu_s = max(time.process_time() - cpu_s, 1e-6)
    result = Result(
        scenario=options.scenario,
        seed=options.seed,
        nodes=len(group.peers),
        order="total",
        faults=dict(sorted(play.faults.items())),
        ok=not findings,
        due=play.asked,
        delivered=len(group.acknowledged),
        order_violations=findings.count("fork", "chain", "state_machine", "log_matching"),
        lost_acknowledged=findings.count("lost"),
        findings=findings.by_kind(),
        details=[f"{each.kind}: {each.detail}" for each in findings.details],
        topics=1,
        events=len(checkers.order),
        acknowledged=len(group.acknowledged),
        all_messages=group.messages,
        counts=dict(sorted(group.counts.items())),
        sim_s=round(group.loop.now, 3),
        wall_s=round(time.perf_counter() - wall_s, 3),
        cpu_s=round(cpu_s, 3),
        messages_per_s=round(group.messages / cpu_s),
        replay=options.replay_command(),
    )
    write_result(options, result)
    return result


class _Play:
    """One seed: what is done to the group, and what clients do."""

    def __init__(self, seed: int, without: str | None, tracer: TraceWriter | None) -> None:
        rng = self.rng = Random(f"sequencers/{seed}")
        size = rng.choice((3, 3, 5))
        changes = self.changes = Random(f"changes/{seed}")
        self.changing = changes.random() < CHANGING_SHARE
        spare = changes.choice((1, 2, 3)) if self.changing else 0
        parameters = Parameters(
            election_timeout_s=TIMEOUT_S,
            leader_heartbeat_s=TIMEOUT_S / 3,
            sequencer_log=rng.choice((2, 8, 64)),
        )
        self.tracer = tracer
        self.group = Group(seed, size + spare, parameters, parts=find(without).parts, tracer=tracer)
        self.group.publish(self.group.peers[:size])
        self.duration_s = rng.uniform(15.0, 40.0)
        self.kinds = [
            kind for kind in ("kill", "wipe", "pause", "cut", "storm") if rng.random() < 0.65
        ]
        if rng.random() < AMBUSH_SHARE:
            self.group.checkers.on_leader = self._ambush
        self.eagerness_s = rng.choice((0.2, 0.6, 1.5))
        self.asked = 0
        self.faults: dict[str, int] = {}
        self._talk_s: float | None = None
        self._calm = False

    def run(self) -> None:
        """Everything at once, then calm, and the end."""
        group, loop = self.group, self.group.loop
        for peer in group.peers:
            loop.at(self.rng.uniform(0.0, 2.0), lambda peer: peer.start(), peer)
        loop.at(0.5, self._ask)
        loop.at(self.rng.uniform(0.0, 8.0), self._break)
        if self.changing:
            loop.at(self.changes.uniform(2.0, 12.0), self._change)
        loop.at(0.0, self._look)
        loop.run(self.duration_s)
        self._mend()
        loop.run(loop.now + TIMEOUT_S)
        until_s = loop.now + 4 * TIMEOUTS_MAX * TIMEOUT_S
        while loop.now < until_s and not self._is_done():
            loop.run(loop.now + TIMEOUT_S)
        self._judge()

    # Clients.

    def _ask(self, _: None) -> None:
        if self._calm:
            return
        if len(self.group.asked) < 8:
            self.asked += 1
            self.group.ask(b"request %d" % self.asked)
        self.group.loop.after(self.rng.expovariate(1 / self.eagerness_s), self._ask)

    # The author.

    def _change(self, _: None) -> None:
        """Name other sequencers; everyone hears of it in its own time."""
        if self._calm:
            return
        rng, group = self.changes, self.group
        count = min(rng.choice(SEQUENCERS), len(group.peers))
        named = rng.sample(group.peers, count)
        if sum(peer.wiped for peer in named) <= (count - 1) // 2:
            self._tell(group.publish(named))
            self._did("change")
        group.loop.after(rng.uniform(0.5, 15.0), self._change)

    def _tell(self, version: int) -> None:
        late_s = self.changes.choice((0.0, 0.5, 3.0))
        for peer in self.group.peers:
            delay_s = self.changes.uniform(0.0, late_s)
            self.group.loop.after(delay_s, lambda peer: peer.learn(version), peer)

    # Faults.

    def _break(self, _: None) -> None:
        """One thing breaks, for a while."""
        if self._calm:
            return
        rng = self.rng
        peer = rng.choice(self.group.peers)
        leaders = [each for each in self.group.peers if each.up and each.state.leads]
        if leaders and rng.random() < 0.5:
            # It is the leader that matters most.
            peer = rng.choice(leaders)
        lasts_s = rng.choice((0.05, 1.0, 4.0, 12.0)) * rng.uniform(0.5, 1.5)
        kind = rng.choice(self.kinds) if self.kinds else ""
        if kind == "kill" and peer.up:
            self._kill(peer, lasts_s, wipe=False)
        elif kind == "wipe" and peer.up and self._may_wipe(peer):
            self._kill(peer, lasts_s, wipe=True)
        elif kind == "pause" and peer.up and not peer.paused:
            peer.paused = True
            life = peer.life
            self.group.loop.after(lasts_s, lambda _: self._resume(peer, life))
        elif kind == "cut":
            self.group.side = [rng.randrange(2) for _ in self.group.peers]
            self.group.loop.after(lasts_s, lambda _: self._heal())
        elif kind == "storm":
            usual = self.group.weather.loss
            self.group.weather.loss = 0.5
            self.group.loop.after(lasts_s, lambda _: self._calm_down(usual))
        else:
            kind = ""
        if kind:
            self._did(kind)
        self.group.loop.after(rng.expovariate(1 / rng.choice((0.3, 2.0, 8.0))), self._break)

    def _ambush(self, leader: Peer) -> None:
        """Cut a new leader off, and kill those that voted for it, for a moment.

        One of them may lose its disk, and so forget its vote: now and then twice.
        """
        rng = self.rng
        if self._calm or rng.random() < 0.4:
            return
        voters = [peer for peer in self.group.peers if peer is not leader and peer.up]
        others = [peer for peer in voters if peer.state.voted_for == leader.id]
        lasts_s = rng.uniform(2.0, 6.0)

        def strike(_: None) -> None:
            self.group.side = [int(peer is leader) for peer in self.group.peers]
            for peer in others:
                if peer.up and rng.random() < 0.7:
                    wipe = rng.random() < 0.5 and self._may_wipe(peer)
                    self._kill(peer, rng.uniform(0.01, 0.2), wipe=wipe)
            self._did("ambush")
            self.group.loop.after(lasts_s, lambda _: self._heal())

        self.group.loop.after(rng.uniform(0.0, 0.1), strike)

    def _may_wipe(self, peer: Peer) -> bool:
        """Of each list that has a say, or is to have one, fewer than half may lose their stores."""
        lists = self.group.versions[self.group.checkers.version :]
        wiped = {each.id for each in self.group.peers if each.wiped} | {peer.id}
        return all(
            sum(each in wiped for each in sequencers) <= (len(sequencers) - 1) // 2
            for sequencers in lists
            if peer.id in sequencers
        )

    def _kill(self, peer: Peer, lasts_s: float, *, wipe: bool) -> None:
        peer.end(wipe=wipe)
        self.group.loop.after(lasts_s, lambda _: self._restart(peer))

    def _restart(self, peer: Peer) -> None:
        if not peer.up:
            peer.start()
            self._changed()

    def _resume(self, peer: Peer, life: int) -> None:
        if peer.life == life and peer.paused:
            peer.resume()
            self._changed()

    def _heal(self) -> None:
        self.group.side = [0] * len(self.group.peers)
        self._changed()

    def _calm_down(self, usual: float) -> None:
        self.group.weather.loss = min(usual, 0.1)
        self._changed()

    def _mend(self) -> None:
        self._calm = True
        self._heal()
        self.group.weather.loss = min(self.group.weather.loss, 0.1)
        for peer in self.group.peers:
            if not peer.up:
                peer.start()
            elif peer.paused:
                peer.resume()

    # Progress.

    def _did(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1
        if self.tracer is not None:
            self.tracer.note(self.group.loop.now, trace.Fault(fault, "network"))
        self._changed()

    def _changed(self) -> None:
        """The world is another one: ten timeouts begin anew."""
        self._talk_s = None

    def _look(self, _: None) -> None:
        now = self.group.loop.now
        stormy = self.group.weather.loss > 0.1
        if stormy or not self.group.asked or not self.group.quorum_can_talk():
            self._talk_s = None
        elif self._talk_s is None:
            self._talk_s = now
        since_s = (
            None if self._talk_s is None else max(self._talk_s, self.group.checkers.certified_s)
        )
        if since_s is not None and now - since_s > TIMEOUTS_MAX * TIMEOUT_S:
            self.group.checkers.findings.add(
                "stalled", f"at {now:.3f} s: nothing was ordered since {since_s:.3f} s"
            )
            self._talk_s = None
        self.group.loop.after(LOOK_S, self._look)

    # The end.

    def _is_done(self) -> bool:
        order = self.group.checkers.order
        if not self._is_changed():
            return False
        return not self.group.asked and all(
            len(peer.history) == len(order) for peer in self.group.peers
        )

    def _is_changed(self) -> bool:
        """Whether those count whom the author named last."""
        group = self.group
        return group.versions[group.checkers.version] == group.versions[-1]

    def _judge(self) -> None:
        findings, order = self.group.checkers.findings, self.group.checkers.order
        if not self._is_changed():
            number = self.group.checkers.version
            findings.add("unchanged", f"the sequencers are still those of version {number}")
        if self.group.asked:
            findings.add("unanswered", f"{len(self.group.asked)} requests")
        for request, position in self.group.acknowledged.items():
            if order.get(position, (None, None))[1] != request:
                findings.add("lost", f"request {request!r} was acknowledged at {position}")
        for position in range(1, len(order) + 1):
            if position not in order:
                findings.add("number_gap", f"no event at position {position}")
        for peer in self.group.peers:
            for position, (cid, _) in peer.history.items():
                if order.get(position, (None, None))[0] != cid:
                    findings.add("fork", f"sequencer {peer.index} has another at {position}")
            if len(peer.history) < len(order):
                findings.add("lost", f"sequencer {peer.index} lacks history")
