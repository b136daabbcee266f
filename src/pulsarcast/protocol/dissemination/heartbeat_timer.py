"""A heartbeat's timer: sets when the next one is due, later while nothing changes, then never."""

from typing import Protocol

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dissemination.quiet_topics import QuietTopic, QuietTopics


class HeartbeatOwner(Protocol):
    """What heartbeats ask of the topic that they belong to."""

    def digest(self) -> bytes:
        """A hash of what the node holds."""

    def differs_from(self, peer: PeerId, digest: bytes) -> None:
        """A neighbour holds other events than the node, as its digest says."""


class Beating(QuietTopic, Protocol):
    """What the timer asks of the heartbeats that it belongs to."""

    def is_settled(self) -> bool:
        """Whether further heartbeats would bring nothing."""


class HeartbeatTimer:
    """Fires at random points of an interval that doubles while the digest stays the same.

    After the longest one the topic falls asleep, if it is settled.
    """

    __slots__ = (
        "_interval_s",
        "_last_digest",
        "_quiet",
        "_timer",
        "owner",
        "parameters",
        "topic",
        "turn",
    )

    def __init__(
        self, context: Context, topic: HeartbeatOwner, owner: Beating, quiet: QuietTopics
    ) -> None:
        self.turn = context.turn
        self.parameters = context.parameters
        self.topic = topic
        self.owner = owner
        self._interval_s = context.parameters.status_interval_s
        self._last_digest = b""
        self._quiet = quiet
        self._timer: int | None = None

    @property
    def is_beating(self) -> bool:
        """Whether it was started and not stopped."""
        return self._timer is not None or self._quiet.is_asleep(self.owner.topic)

    def start(self) -> None:
        """Begin, at a random point of the interval."""
        delay = self.parameters.status_interval_s * (0.2 + 0.8 * self.turn.rng.random())
        self.turn.cancel(self._timer)
        self._timer = self.turn.after(delay, self._on_time)
        self._quiet.wake(self.owner.topic)

    def stop(self) -> None:
        """Fire no more."""
        self.turn.cancel(self._timer)
        self._timer = None
        self._quiet.end(self.owner.topic)

    def hurry(self) -> None:
        """Something changed: fire at the normal interval again."""
        self._quiet.changed(self.owner.topic)
        if self._interval_s > self.parameters.status_interval_s and self.is_beating:
            self._interval_s = self.parameters.status_interval_s
            self._quiet.wake(self.owner.topic)
            self.turn.cancel(self._timer)
            self._timer = self.turn.after(self.turn.jitter(self._interval_s), self._on_time)

    def _on_time(self) -> None:
        digest, longest_s = self.topic.digest(), self.parameters.status_interval_s_max
        if digest != self._last_digest:
            self._interval_s = self.parameters.status_interval_s
        elif self._interval_s < longest_s:
            self._interval_s = min(2 * self._interval_s, longest_s)
        elif self.owner.is_settled():
            self._timer = None
            self._quiet.sleep(self.owner)
        self._last_digest = digest
        if not self._quiet.is_asleep(self.owner.topic):
            self._timer = self.turn.after(self.turn.jitter(self._interval_s), self._on_time)
        self.owner.beat()
