"""A heartbeat's timer: sets when the next heartbeat is due, later while nothing changes."""

from typing import Protocol

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.context import Context


class HeartbeatOwner(Protocol):
    """What heartbeats ask of the topic that they belong to."""

    def digest(self) -> bytes:
        """A hash of what the node holds."""

    def differs_from(self, peer: PeerId) -> None:
        """A neighbour holds other events than the node."""


class Beating(Protocol):
    """What the timer asks of the heartbeats that it belongs to."""

    def beat(self) -> None:
        """A heartbeat is due."""


class HeartbeatTimer:
    """Fires at random points of an interval that doubles while the digest stays the same."""

    def __init__(self, context: Context, topic: HeartbeatOwner, owner: Beating) -> None:
        self.turn = context.turn
        self.parameters = context.parameters
        self.topic = topic
        self.owner = owner
        self._interval_s = context.parameters.status_interval_s
        self._last_digest = b""
        self._timer: int | None = None

    @property
    def is_beating(self) -> bool:
        """Whether it was started and not stopped."""
        return self._timer is not None

    def start(self) -> None:
        """Begin, at a random point of the interval."""
        delay = self.parameters.status_interval_s * (0.2 + 0.8 * self.turn.rng.random())
        self.turn.cancel(self._timer)
        self._timer = self.turn.after(delay, self._on_time)

    def stop(self) -> None:
        """Fire no more."""
        self.turn.cancel(self._timer)
        self._timer = None

    def hurry(self) -> None:
        """Something changed: fire at the normal interval again."""
        if self.is_beating and self._interval_s > self.parameters.status_interval_s:
            self._interval_s = self.parameters.status_interval_s
            self.turn.cancel(self._timer)
            self._timer = self.turn.after(self.turn.jitter(self._interval_s), self._on_time)

    def _on_time(self) -> None:
        digest = self.topic.digest()
        if digest == self._last_digest:
            self._interval_s = min(2 * self._interval_s, self.parameters.status_interval_s_max)
        else:
            self._interval_s = self.parameters.status_interval_s
        self._last_digest = digest
        self._timer = self.turn.after(self.turn.jitter(self._interval_s), self._on_time)
        self.owner.beat()
