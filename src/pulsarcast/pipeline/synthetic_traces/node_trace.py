"""One node's trace: deliveries as fast as text can be joined, and between them all else."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from pulsarcast.model import trace
from pulsarcast.model.ids import cid_text
from pulsarcast.model.topic_types import DeliveryOrder, Dissemination
from pulsarcast.pipeline.synthetic_traces.events import Era, acknowledged
from pulsarcast.pipeline.synthetic_traces.plan import PATTERN, Death, Period, Plan
from pulsarcast.pipeline.synthetic_traces.segments import Segments

START_NS: Final = 1_767_225_600_000_000_000
SLOT_NS: Final = 2_000_000
_NEVER: Final = 1 << 62


class Filling(NamedTuple):
    """How many lines of a node only fill up, and among how many deliveries they are spread."""

    lines: int
    deliveries: int

    def place(self, filled: int) -> int:
        """Before which delivery the next one goes, when so many are written."""
        if not self.lines:
            return _NEVER
        return -(-(filled + 1) * self.deliveries // self.lines) - 1


class NodeTrace:
    """One node's trace while it is written."""

    def __init__(self, plan: Plan, node: int, folder: Path, filling: Filling) -> None:
        self.plan = plan
        self.node = node
        self.me = plan.nodes[node]
        self.name = plan.names[node]
        self.counts: Counter[str] = Counter()
        self.incarnation = 1
        self.seq = 1
        self.delivered = 0
        self.filled = 0
        self.filling = filling
        self.segments = Segments(folder, self.name)
        self.rng = Random(f"{plan.seed} {node}")
        self.variant = plan.variant(node)
        # Others see an event later than it was published, even with the sequence turned around.
        self.delay_ns = 0 if self.me.steady else (plan.disorder + 4 + node % 16) * SLOT_NS
        self.clock_ns = (node * 7919 % 4001 - 2000) * 1_000_000
        self.born_ns = START_NS
        self.from_slot = [0] * len(plan.topics)
        self.to_slot = [0] * len(plan.topics)
        self.before: list[int] = [0] * len(plan.topics)
        self.indexes: list[Iterator[int]] = [count(1) for _ in plan.topics]
        self.hops = [1 + (node * 31 + topic * 17) % 6 for topic in range(len(plan.topics))]
        self.tails = [f',"hops":{hops},"redelivery":false}}\n' for hops in self.hops]
        self.roles = {
            at
            for at, (topic, by) in enumerate(plan.pattern)
            if plan.topics[topic].publishers[by] == node or node in plan.topics[topic].askers
        }
        self.commands = sorted(self._plan_commands(), key=lambda each: each[:2])
        self._begin_lines()

    def _plan_commands(self) -> Iterator[tuple[int, int, Callable[[int], None]]]:
        """What happens to this node: at which slot, what goes first in a slot, and how.

        A command is called with the node's own time, which is the place it has come to.
        """
        yield -1, 0, self._start
        for period in self.me.periods:
            yield (period.first or -1), 3, partial(self._subscribe, period)
            if period.unsubscribed:
                assert period.end is not None
                yield period.end + self.plan.disorder, 1, partial(self._unsubscribe, period)
        for death in self.me.deaths:
            yield death.slot, 2, partial(self._die, death)

    def play(self, era: Era) -> None:
        """Write what this node does in an era."""
        sequence = era.own_sequence(self.node) if self.me.steady else era.sequence(self.variant)
        order, seen = sequence
        at = 0
        while self.commands and self.commands[0][0] < era.end:
            slot, _, act = self.commands.pop(0)
            until = bisect_left(seen, slot)
            self._deliver(era, order, at, until)
            at = until
            act(era.first + until)
        self._deliver(era, order, at, len(order))

    def end(self) -> None:
        """Write what is left once all events are out."""
        for _, _, act in self.commands:
            act(self.plan.slots)
        if not self.me.deaths or self.me.deaths[-1].returns:
            self._say(self.plan.slots, trace.NodeStopped(trace.StopReason.RUN_ENDED))
        self.segments.close()

    # Lines.

    def _begin_lines(self) -> None:
        self.beginning = (
            f'{{"schema_version":{trace.SCHEMA_VERSION},"run_id":"{self.plan.run_id}",'
            f'"node_id":"{self.name}","incarnation":{self.incarnation},"seq":'
        )

    def _wall_ns(self, place: int) -> int:
        return START_NS + (place + 1) * SLOT_NS + self.delay_ns + self.clock_ns

    def _envelope(self, place: int) -> str:
        """The envelope of one more line."""
        wall_ns = self._wall_ns(place)
        text = f'{self.beginning}{self.seq},"wall_ns":{wall_ns},"mono_ns":{wall_ns - self.born_ns}'
        self.seq += 1
        return text

    def _say(self, place: int, record: trace.Record) -> None:
        """Write a line of a kind that is rare."""
        wall_ns = self._wall_ns(place)
        envelope = trace.Envelope(
            self.plan.run_id, self.name, self.incarnation, self.seq, wall_ns, wall_ns - self.born_ns
        )
        self.seq += 1
        self._write(trace.kind_of(record), trace.encode_line(envelope, record).decode("ascii"))

    def _write(self, kind: str, text: str, lines: int = 1) -> None:
        self.counts[kind] += lines
        self.segments.write(text)

    # Deliveries.

    def _deliver(self, era: Era, order: Sequence[int], at: int, until: int) -> None:
        """Write the deliveries from one place of the sequence to another, and what goes between."""
        first = era.first
        from_slot = [slot - first for slot in self.from_slot]
        to_slot = [slot - first for slot in self.to_slot]
        topics = era.topics
        chosen = [
            (place, event)
            for place, event in enumerate(order[at:until], first + at)
            if from_slot[topic := topics[event]] <= event < to_slot[topic]
        ]
        write = self._write_steadily if self.roles else self._write_at_once
        done = 0
        while done < len(chosen):
            # The next line that fills up comes before this delivery, counted from all of them.
            due = self.filling.place(self.filled)
            room = min(len(chosen), done + due - self.delivered)
            if room > done:
                write(era, chosen[done:room])
                self.delivered += room - done
                done = room
            else:
                self._fill(era, *chosen[done])

    def _write_at_once(self, era: Era, chosen: Sequence[tuple[int, int]]) -> None:
        """Write deliveries of a node that does nothing else."""
        beginning, deliveries, topics = self.beginning, era.deliveries, era.topics
        indexes, tails = [each.__next__ for each in self.indexes], self.tails
        wall_ns = self._wall_ns(0)
        mono_ns = wall_ns - self.born_ns
        lines = [
            f'{beginning}{seq},"wall_ns":{wall_ns + place * SLOT_NS},'
            f'"mono_ns":{mono_ns + place * SLOT_NS}{deliveries[event]}'
            f"{indexes[topic := topics[event]]()}{tails[topic]}"
            for seq, (place, event) in enumerate(chosen, self.seq)
        ]
        self.seq += len(lines)
        self._write("delivered", "".join(lines), len(lines))

    def _write_steadily(self, era: Era, chosen: Sequence[tuple[int, int]]) -> None:
        """Write deliveries of a node that publishes, or asks others to."""
        begun = 0
        for at, (place, event) in enumerate(chosen):
            if (era.first + event) % PATTERN in self.roles:
                if at > begun:
                    self._write_at_once(era, chosen[begun:at])
                begun = at + 1
                self._take_part(era, place, event)
        if begun < len(chosen):
            self._write_at_once(era, chosen[begun:])

    def _take_part(self, era: Era, place: int, event: int) -> None:
        """Write what a publisher, or one who asked it, says besides that it got the event."""
        plan, slot, topic = self.plan, era.first + event, era.topics[event]
        by = plan.pattern[slot % PATTERN][1]
        publishes = plan.topics[topic].publishers[by] == self.node
        asked = plan.asker(topic, slot) == self.node
        if publishes:
            self._publish(place, slot)
        tail = ',"hops":0,"redelivery":false}\n' if publishes else self.tails[topic]
        line = f"{self._envelope(place)}{era.deliveries[event]}{next(self.indexes[topic])}{tail}"
        self._write("delivered", line)
        if asked:
            self._write("acknowledged", self._envelope(place) + acknowledged(plan, slot))

    def _publish(self, place: int, slot: int) -> None:
        plan = self.plan
        topic, by = plan.pattern[slot % PATTERN]
        each = plan.topics[topic]
        cid = cid_text(each.cid)
        parents = ",".join(f'"{cid_text(plan.event(at))}"' for at in plan.parent_slots(slot))
        number = plan.published(topic, slot, by) + 1
        total = each.order is DeliveryOrder.TOTAL
        position = f'{{"term":0,"number":{number}}}' if total else "null"
        asker = plan.asker(topic, slot)
        injection = slot + 1 if asker == self.node else ""
        self._write(
            "published",
            f'{self._envelope(place)},"kind":"published","topic":"{cid}",'
            f'"event":"{cid_text(plan.event(slot))}","version":"{cid}","publisher":"{self.name}",'
            f'"author":"{plan.names[asker]}","epoch":{each.epochs[by]},"number":{number},'
            f'"parents":[{parents}],"position":{position},"request_id":"{slot:064x}",'
            f'"injection":"{injection}","merge":false}}\n',
        )

    def _fill(self, era: Era, place: int, event: int) -> None:
        """Write a line, or two, that no promise is about, before a delivery."""
        turn, left = (self.filled + 7 * self.node) % 20, self.filling.lines - self.filled
        own = (era.first + event) % PATTERN in self.roles
        peer = self.plan.names[self.rng.randrange(len(self.plan.names))]
        topic = f'"topic":"{cid_text(self.plan.topics[era.topics[event]].cid)}"'
        self.filled += 1
        if turn == 17:
            used = self.seq * 3
            self._write(
                "resources",
                f'{self._envelope(place)},"kind":"resources","cpu_s":{used / 8},'
                f'"rss_bytes":{(64 << 20) + used},"bytes_in":{used * 400},'
                f'"bytes_out":{used * 300}}}\n',
            )
        elif turn == 18 and left >= 2 and not own:
            found, number = f"{topic},{era.places[event]}".rsplit(",", 1)
            at = number.removeprefix('"number":')
            self._write(
                "gap_found",
                f'{self._envelope(place)},"kind":"gap_found",{found},"first":{at},"last":{at}}}\n',
            )
            self._write(
                "gap_filled",
                f'{self._envelope(place)},"kind":"gap_filled",{found},{number},'
                f'"source":"{peer}"}}\n',
            )
            self.filled += 1
        else:
            kind = "rpc_sent" if turn % 2 else "rpc_received"
            operation, about = ("Status", '"topic":null') if turn < 3 else ("EventMessage", topic)
            self._write(
                kind,
                f'{self._envelope(place)},"kind":"{kind}","operation":"{operation}",{about},'
                f'"peer":"{peer}","bytes":{200 + self.rng.randrange(400)}}}\n',
            )

    # What happens to a node.

    def _start(self, place: int) -> None:
        self.born_ns = self._wall_ns(place)
        self._say(place, trace.NodeStarted())
        if self.incarnation > 1:
            return
        for topic in self.plan.topics:
            if topic.publishers[0] == self.node:
                peers = tuple(self.plan.peers[node] for node in topic.publishers)
                allowed = None if topic.is_open else peers
                tree = Dissemination.TREE
                self._say(
                    place,
                    trace.TopicCreated(
                        topic.cid, topic.name, peers[0], topic.order, tree, topic.cid,
                        allowed=allowed,
                    ),
                )  # fmt: skip

    def _subscribe(self, period: Period, place: int) -> None:
        topic = period.topic
        self.from_slot[topic] = period.first
        self.to_slot[topic] = _NEVER if period.end is None else period.end
        start = self.plan.marks(topic, period.first)
        self._say(place, trace.Subscribed(self.plan.topics[topic].cid, start))

    def _unsubscribe(self, period: Period, place: int) -> None:
        assert period.end is not None
        topic = period.topic
        self.before[topic] += self._published_between(topic, period.first, period.end)
        self.from_slot[topic] = self.to_slot[topic] = 0
        end = self.plan.marks(topic, period.end)
        self._say(place, trace.Unsubscribed(self.plan.topics[topic].cid, end))

    def _die(self, death: Death, place: int) -> None:
        self.segments.begin_life()
        self.incarnation += 1
        self.seq = 1
        self._begin_lines()
        if not death.keeps_disk:
            topics = range(len(self.plan.topics))
            self.from_slot, self.to_slot, self.before = ([0 for _ in topics] for _ in range(3))
            self.indexes = [count(1) for _ in topics]
        if not death.returns:
            return
        self._start(place)
        again = self.plan.told_again(self.node, death)
        if again is not None:
            self._publish(place, again)
        for topic, slots in self.plan.redelivered(self.node, death):
            self._deliver_again(place, topic, slots)

    def _deliver_again(self, place: int, topic: int, slots: Sequence[int]) -> None:
        plan, each = self.plan, self.plan.topics[topic]
        for again in slots:
            number = plan.published(topic, again) + 1
            index = self.before[topic] + number - plan.published(topic, self.from_slot[topic])
            self._say(
                place,
                trace.Delivered(
                    each.cid, plan.event(again), plan.peers[each.publishers[0]], each.epochs[0],
                    number, index, 0, redelivery=True,
                ),
            )  # fmt: skip

    def _published_between(self, topic: int, first: int, end: int) -> int:
        return self.plan.published(topic, end) - self.plan.published(topic, first)
