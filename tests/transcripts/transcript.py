"""Transcripts: a whole run as lines that a person can read, and a reviewer can compare."""

from collections.abc import Iterator

from pulsarcast.model import trace
from pulsarcast.model.events import decode_event
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.effects import Deliver, Effect, Reply, Send, Trace
from pulsarcast.protocol.messages import (
    Contact,
    Credit,
    EventMessage,
    FetchRange,
    FrontierPage,
    HandOver,
    Join,
    JoinAccepted,
    JoinReferred,
    JoinRefused,
    Leave,
    Meet,
    Members,
    Message,
    Range,
    StartParts,
    Status,
)
from pulsarcast.protocol.store import MarkState
from tests.support.lab import Lab

WHO = 10


class Transcript:
    """Renders what the nodes of a lab did about one topic; the DHT's talk is left out."""

    def __init__(self, lab: Lab, topic: Cid) -> None:
        self.lab = lab
        self.topic = topic
        self.events: dict[Cid, str] = {}

    def lines(self) -> list[str]:
        """All lines, in the order in which things happened."""
        notes = [
            (note.time_s, f"{note.action} n{note.nodes[0]}", "")
            for note in self.lab.world.fault_notes
        ]
        happened: list[tuple[float, str, str]] = []
        for turn in self.lab.taken:
            while notes and notes[0][0] <= turn.time_s:
                happened.append(notes.pop(0))
            for effect in turn.effects:
                for who, what in self._effect(turn.node, effect):
                    happened.append((turn.time_s, who, what))
        return [f"{time_s:8.3f}  {who:<{WHO}}{what}".rstrip() for time_s, who, what in happened]

    def _effect(self, index: int, effect: Effect) -> Iterator[tuple[str, str]]:
        match effect:
            case Send(peer, message):
                what = self._message(message)
                if what is not None:
                    yield f"n{index} > {self._name(peer)}", what
            case Trace(record) | Deliver(record=record):
                said = self._record(record)
                if said is not None:
                    yield f"n{index}", said
            case Reply(refusal=refusal):
                yield (
                    f"n{index}",
                    "answers its caller" + ("" if refusal is None else f": {refusal.code}"),
                )
            case _:
                pass

    # Names.

    def _name(self, peer: PeerId) -> str:
        return f"n{self.lab.world.index_of(peer)}"

    def _event(self, cid: Cid) -> str:
        return self.events.setdefault(cid, f"e{len(self.events) + 1}")

    def _path(self, path: tuple[PeerId, ...]) -> str:
        return "/".join(self._name(peer) for peer in path)

    def _contacts(self, contacts: tuple[Contact, ...]) -> str:
        return ",".join(self._name(contact.peer) for contact in contacts) or "nobody"

    def _marks(self, marks: tuple[MarkState, ...]) -> str:
        shown = (f"{self._name(mark.publisher)}:{mark.floor}..{mark.high}" for mark in marks)
        return " ".join(shown) or "nothing"

    # What is said.

    def _message(self, message: Message) -> str | None:
        if isinstance(message, EventMessage):
            event = decode_event(message.block)
            if event.topic != self.topic:
                return None
            return f"event {self._event(event.cid)}, hop {message.hops}"
        if getattr(message, "topic", None) != self.topic:
            return None
        match message:
            case Join(handed_down=handed_down, fresh=fresh):
                words = ["join"]
                words += ["handed down"] if handed_down else []
                words += ["fresh"] if fresh else []
                return ", ".join(words)
            case JoinAccepted(path=path, members=members):
                others = self._contacts(members)
                return f"join accepted, path {self._path(path)}, others: {others}"
            case JoinReferred(contact=contact, handed_down=handed_down):
                to = "handed down to" if handed_down else "referred to"
                return f"join {to} {self._name(contact.peer)}"
            case JoinRefused(code=code):
                return f"join refused: {code}"
            case Leave():
                return "leave"
            case HandOver(contact=contact):
                return f"hand over to {'nobody' if contact is None else self._name(contact.peer)}"
            case Meet(count=count):
                return f"meet, and name {count}"
            case Members(members=members):
                return f"members: {self._contacts(members)}"
            case Status(path=path, answer=answer):
                return f"status, path {self._path(path)}{', and you?' if answer else ''}"
            case FrontierPage(marks=marks, answer=answer):
                return f"holds {self._marks(marks)}{', and you?' if answer else ''}"
            case StartParts(marks=marks):
                return f"start at {self._marks(marks)}"
            case FetchRange(publisher=publisher, first=first, last=last):
                return f"fetch {self._name(publisher)}:{first}..{last}"
            case Range(blocks=blocks, more=more):
                names = " ".join(self._event(decode_event(block).cid) for block in blocks)
                return f"range {names or 'of nothing'}{', more' if more else ''}"
            case Credit(size=size):
                return f"credit {size}"
            case _:
                return type(message).__name__

    # What is written down.

    def _record(self, record: trace.Record) -> str | None:
        if getattr(record, "topic", self.topic) != self.topic:
            return None
        match record:
            case trace.Published(event=event, number=number):
                return f"publishes {self._event(event)} as number {number}"
            case trace.Delivered(event=event, index=index, redelivery=redelivery):
                again = ", again" if redelivery else ""
                return f"delivers {self._event(event)} at place {index}{again}"
            case trace.Subscribed(start=start):
                marks = " ".join(f"{self._name(m.publisher)}:{m.number}" for m in start)
                return f"is subscribed from {marks or 'the beginning'}"
            case trace.Acknowledged(event=event, level=level):
                return f"acknowledges {self._event(event)}: {level}"
            case trace.GapFound(publisher=publisher, first=first, last=last):
                return f"lacks {self._name(publisher)}:{first}..{last}"
            case trace.GapFilled(number=number, source=source):
                return f"has it up to {number}, from {self._name(source) if source else 'the DHT'}"
            case trace.NodeStarted():
                return "starts"
            case trace.TopicCreated():
                return "creates the topic"
            case trace.Rejected(verdict=verdict, reason=reason):
                return f"{verdict.value}s: {reason}"
            case _:
                return type(record).__name__
