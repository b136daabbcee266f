"""What the nodes of a testbed in the background can be asked to do.

Everything is begun at once and answered when it is done, so that no request waits for another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, assert_never

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid, cid_text
from pulsarcast.simulation.applications import settings_for
from pulsarcast.testbed import meters
from pulsarcast.testbed.control.book import Book, parse_nodes, payload_of
from pulsarcast.testbed.control.messages import Do, Reported
from pulsarcast.testbed.messages import Answer, Failed, Measure, Measured
from pulsarcast.testbed.sessions import Session

MIB: Final = 2**20


class Acts:
    """Creating, subscribing, publishing and measuring, by hand."""

    def __init__(self, session: Session, book: Book, state_of: Callable[[int], str]) -> None:
        self._session = session
        self._fleet = session.fleet
        self._callers = session.callers
        self._book = book
        self._state_of = state_of

    def do(self, asked: Do, tell: Callable[[Reported], None]) -> None:
        """Have nodes do something; `tell` hears what came of it, with a row for each."""
        indices = parse_nodes(asked.nodes, self._session.size)
        rows = _Rows(indices, tell)
        if asked.action == "measure":
            for index in indices:
                self._measure(index, rows)
            return
        if not asked.topic:
            raise LocalError(f"{asked.action} needs the name of a topic")
        if asked.action == "create":
            self._create(indices, asked.topic, rows)
            return
        topic = self._book.topic(asked.topic)
        for index in indices:
            match asked.action:
                case "subscribe":
                    self._subscribe(index, asked.topic, topic, rows)
                case "publish":
                    self._publish(index, asked.topic, topic, asked.text, rows)
                case _ as unreachable:
                    assert_never(unreachable)

    def _create(self, indices: Sequence[int], name: str, rows: _Rows) -> None:
        if len(indices) != 1:
            raise LocalError("a topic has one author: name one node")
        if name in self._book.topics:
            raise LocalError(f"there is a topic {name!r} already")
        [index] = indices
        options = self._session.options
        peer = self._fleet.peers[index]
        settings = settings_for(options.order, peer, options.dissemination)

        def created(cid: Cid | None) -> None:
            if cid is not None:
                self._book.topics[name] = cid
            rows.enter(index, cid is not None, topic=None if cid is None else cid_text(cid))

        self._callers.create(index, name, settings, created)

    def _subscribe(self, index: int, name: str, topic: Cid, rows: _Rows) -> None:
        if self._book.is_subscribed(index, name):
            rows.enter(index, True)
            return

        def subscribed(stands: bool) -> None:
            if stands:
                self._book.subscribe(index, name)
            rows.enter(index, stands)

        self._callers.subscribe(index, topic, subscribed)

    def _publish(self, index: int, name: str, topic: Cid, text: str, rows: _Rows) -> None:
        number = self._book.enter(index, name)

        def published(cid: Cid | None) -> None:
            event = None if cid is None else cid_text(cid)
            rows.enter(index, cid is not None, number=number, event=event)

        self._callers.publish(
            index,
            topic,
            payload_of(number, text),
            injection=str(number),
            then=published,
            replicated=self._session.options.ack == "replicated",
        )

    def _measure(self, index: int, rows: _Rows) -> None:
        fleet = self._fleet
        state = self._state_of(index)
        if state != "up":
            rows.enter(index, False, error=state)
            return

        def answered(answer: Answer) -> None:
            if not isinstance(answer, Measured) or not fleet.is_up(index):
                error = answer.error if isinstance(answer, Failed) else "down"
                rows.enter(index, False, error=error)
                return
            pid, limits = fleet.pid(index), fleet.limits
            rows.enter(
                index,
                answer.halted is None,
                pid=pid,
                life=fleet.life(index),
                deliveries=self._session.ledger.deliveries_of(index),
                bytes_in=answer.bytes_in,
                bytes_out=answer.bytes_out,
                cpu_s=round(meters.cpu_s(pid), 3),
                rss_mib=round(meters.own_rss_bytes(pid) / MIB, 1),
                **({} if limits is None else {"peak_mib": limits.peak_mib(index)}),
                **({} if answer.halted is None else {"halted": answer.halted}),
            )

        fleet.ask(index, Measure, answered)


class _Rows:
    """What nodes answered, told when the last one has."""

    def __init__(self, indices: Sequence[int], tell: Callable[[Reported], None]) -> None:
        self._rows: dict[int, dict[str, Any]] = {}
        self._indices = indices
        self._tell = tell

    def enter(self, index: int, done: bool, **facts: Any) -> None:
        """One node has answered."""
        self._rows[index] = {"node": index, "ok": done, **facts}
        if len(self._rows) == len(self._indices):
            rows = [self._rows[index] for index in self._indices]
            self._tell(Reported({}, rows, ok=all(row["ok"] for row in rows)))
