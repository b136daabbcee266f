"""Errors: types for what a caller is refused, and codes for the rules that a peer broke.

Programs read codes, people read sentences. A refusal has a type for each code, the same in the
library, over HTTP and in the client; a peer's fault has a code in the trace. A sentence may be
reworded at any time: nothing compares it. The third voice is `assert`, for broken invariants of
the program.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Final, NamedTuple


class Verdict(enum.Enum):
    """A receiver's judgement of a message, and so of its sender."""

    IGNORE = "ignore"  # of no use here, and not the sender's fault
    REJECT = "reject"  # the sender should have known better


class PulsarcastError(Exception):
    """The base of every error that this project raises on purpose."""


# Refusals, which callers get.


class Refusal(NamedTuple):
    """Why a request is refused, as a value: a code for programs and a sentence for people."""

    code: str
    message: str
    topic: str = ""
    """The id of the topic that stands in the way, where one does."""
    after_s: float = 0.0
    """When to come back, where the node can say that; 0: it cannot."""

    def error(self) -> LocalError:
        """The exception of this code; of a code that this version does not know, the base."""
        error = REFUSALS.get(self.code, LocalError)(self.message, topic=self.topic)
        error.after_s = self.after_s
        return error


class LocalError(PulsarcastError):
    """The request is not valid, and would not be valid later either."""

    code: ClassVar[str] = "invalid"
    """Names the type to programs in other processes. It never changes.

    A subclass without a code of its own tells more to callers in the same process only."""
    retryable: ClassVar[bool] = False
    """Whether the same request may succeed a little later."""

    def __init__(self, *message: object, topic: str = "", after_s: float = 0.0) -> None:
        super().__init__(*message)
        self.topic = topic
        """The id of the topic that stands in the way, where one does."""
        self.after_s = after_s
        """When to come back, where the node can say that; 0: it cannot."""

    @property
    def refusal(self) -> Refusal:
        """The same as a value."""
        return Refusal(self.code, str(self), self.topic, self.after_s)


class InvalidFilter(LocalError):
    """The filter is not in the language, does not fit the topic's schema, or is too large."""

    code = "invalid_filter"


class InvalidPayload(LocalError):
    """The payload is not what the caller gives or reads it as: bytes, text or JSON."""

    code = "invalid_payload"


class Malformed(LocalError):
    """The request cannot be read."""

    code = "malformed"


class UnsupportedMediaType(LocalError):
    """The body of the request has a media type that the operation does not take."""

    code = "unsupported_media_type"


class MethodNotAllowed(LocalError):
    """The path exists, and does not take this HTTP method."""

    code = "method_not_allowed"


class Misdirected(LocalError):
    """The request names a host that this daemon does not answer for."""

    code = "misdirected"


class TooLarge(LocalError):
    """The payload, or the whole request, has more bytes than the topic or the node allows."""

    code = "too_large"


class InvalidToken(LocalError):
    """The token is missing, unknown or revoked."""

    code = "invalid_token"


class NotAllowed(LocalError):
    """The topic does not give this right to the caller."""

    code = "not_allowed"


class InsufficientScope(NotAllowed):
    """The token is valid, and does not allow this operation or this topic."""

    code = "insufficient_scope"


class NotFound(LocalError):
    """The thing that the request names does not exist, or no peer that was asked has it."""

    code = "not_found"


class TopicNotFound(NotFound):
    """No such topic was found."""

    code = "topic_not_found"


class NotFollowed(NotFound):
    """The node does not follow the topic."""

    code = "not_followed"


class ReaderNotFound(NotFound):
    """No reader of this name has a place in the topic."""

    code = "reader_not_found"


class Gone(LocalError):
    """Retention has removed the events that were asked for."""

    code = "gone"


class Conflict(LocalError):
    """The name, the number or the address is in use already."""

    code = "conflict"


class NameInUse(Conflict):
    """The author's name leads to a topic already; the error names it."""

    code = "name_in_use"


class SettingsDiffer(Conflict):
    """The topic of this name has other settings; the error names the topic."""

    code = "settings_differ"


class TakenOver(Conflict):
    """Another subscription has taken over this reader."""

    code = "taken_over"


class LogChanged(Conflict):
    """The node has another log of the topic: restored, copied, or begun anew."""

    code = "log_changed"


class Busy(LocalError):
    """A queue is full, or the topic's members take events more slowly than they are published."""

    code = "busy"
    retryable = True


class Unavailable(LocalError):
    """Something that the request needs cannot be reached at the moment."""

    code = "unavailable"
    retryable = True


class Closed(LocalError):
    """The node is stopping, or the node or the subscription is closed."""

    code = "closed"
    retryable = True


class Halted(LocalError):
    """The node or the topic can promise nothing any more, until a person has seen to it."""

    code = "halted"


class DiskFull(LocalError):
    """The disk has no room left for new events."""

    code = "disk_full"


class Internal(LocalError):
    """A defect of the node; its log says more."""

    code = "internal"


REFUSALS: Final[Mapping[str, type[LocalError]]] = {
    kind.code: kind
    for kind in (
        LocalError,
        InvalidFilter,
        InvalidPayload,
        Malformed,
        UnsupportedMediaType,
        MethodNotAllowed,
        Misdirected,
        TooLarge,
        InvalidToken,
        NotAllowed,
        InsufficientScope,
        NotFound,
        TopicNotFound,
        NotFollowed,
        ReaderNotFound,
        Gone,
        Conflict,
        NameInUse,
        SettingsDiffer,
        TakenOver,
        LogChanged,
        Busy,
        Unavailable,
        Closed,
        Halted,
        DiskFull,
        Internal,
    )
}
"""The type of each code."""


_KINDS: Final[Mapping[str, str]] = {
    "str": "a text",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}


def in_words(error: Exception) -> str:
    """What msgspec finds wrong in a document, as a sentence that begins with the place."""
    text, _, place = str(error).partition(" - at `$")
    text = re.sub(r"Object contains unknown field `(.*)`", r"there is no field '\1'", text)
    text = re.sub(r"Object missing required field `(.*)`", r"the field '\1' is missing", text)
    text = text.replace("Invalid enum value", "there is no choice")
    text = text.replace("Input data was truncated", "it ends too early")
    text = re.sub(r"`([^`]*)`", _kinds_in_words, text).replace("Expected", "expected")
    text = re.sub(r" of length <= (\d+)", r" of at most \1 characters", text)
    text = re.sub(r" of length >= (\d+)", r" of at least \1 characters", text)
    text = re.sub(r" <= (\S+)", r" of at most \1", text)
    text = re.sub(r" >= (\S+)", r" of at least \1", text)
    place = place.rstrip("`").lstrip(".")
    return f"{place}: {text}" if place else text


def _kinds_in_words(found: re.Match[str]) -> str:
    return " or ".join(_KINDS.get(kind, kind) for kind in found[1].split(" | "))


# Rejections of what peers sent.


class Rejection(enum.StrEnum):
    """Why something that a peer sent is not taken: the codes in `rejected` lines of a trace."""

    MALFORMED = "malformed"  # a field, a message or a descriptor is not as its format says
    NOT_CANONICAL = "not_canonical"  # dag-cbor that has another encoding
    OVERSIZE = "oversize"  # more bytes than a limit allows
    TOO_MANY = "too_many"  # more items than a limit allows, or a list that never ends
    UNKNOWN_VERSION = "unknown_version"  # of another major version of the protocol
    UNKNOWN_KIND = "unknown_kind"  # a message or a role that this version does not know
    BAD_SIGNATURE = "bad_signature"  # not signed by the peer that it names
    BAD_CERTIFICATE = "bad_certificate"  # not certified by sequencers that may do so
    NOT_ASKED_FOR = "not_asked_for"  # an answer to another question
    WRONG_TOPIC = "wrong_topic"  # of another topic, or of another version of it
    FOREIGN_PARENT = "foreign_parent"  # a parent of another topic, or not what the event says
    NOT_ALLOWED = "not_allowed"  # the topic gives the peer no such right
    SUPERSEDED = "superseded"  # right once, by a version that another one replaced
    UNKNOWN_TOPIC_VERSION = "unknown_topic_version"  # rests on a version unknown to the node
    INVALID_TOPIC = "invalid_topic"  # settings of a topic that contradict each other
    INVALID_SUCCESSION = "invalid_succession"  # a version changes what never changes
    INVALID_EVENT = "invalid_event"  # not linked, marked or placed as the topic's order says
    INVALID_ATTRIBUTES = "invalid_attributes"  # not of the topic's schema
    INVALID_FILTER = "invalid_filter"  # a filter that is none on the topic's attributes
    EQUIVOCATION = "equivocation"  # two events with one number
    TWO_CERTIFICATES = "two_certificates"  # two events certified for one position
    INVALID_LOG = "invalid_log"  # entries, terms or members that no correct sequencer sends
    TWO_LEADERS = "two_leaders"  # two leaders in one term
    LOST_ENTRIES = "lost_entries"  # a leader that lacks what was committed
    NOT_A_MEMBER = "not_a_member"  # no sequencer of the topic
    EXPIRED = "expired"  # too old or too new to be kept
    UNKNOWN_OWN_EVENT = "unknown_own_event"  # signed with the node's key, not on its disk
    KEY_IN_USE = "key_in_use"  # another node publishes with this node's key
    BAD_HANDSHAKE = "bad_handshake"  # the connection cannot be set up
    BAD_STREAM = "bad_stream"  # bytes that the connection's layers cannot read
    OTHER_NETWORK = "other_network"  # of another network
    UNSUPPORTED_PROTOCOL = "unsupported_protocol"  # does not speak this protocol
    DISCONNECTED = "disconnected"  # closed the connection


class RemoteError(PulsarcastError):
    """A peer broke a rule; the driver turns it into a verdict and a trace record."""

    def __init__(
        self,
        message: str,
        verdict: Verdict = Verdict.REJECT,
        *,
        code: Rejection = Rejection.MALFORMED,
    ) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.code = code


@contextmanager
def caller_to_blame() -> Iterator[None]:
    """Turn a RemoteError into a LocalError: the caller, not a peer, gave what a check refused.

    A node's own descriptors pass the same checks as a peer's, so each rule is written once.
    """
    try:
        yield
    except RemoteError as error:
        raise blamed_on_caller(error) from error


def blamed_on_caller(error: RemoteError) -> LocalError:
    """The refusal that a caller gets where a peer would get a rejection."""
    return (TooLarge if error.code is Rejection.OVERSIZE else LocalError)(str(error))
