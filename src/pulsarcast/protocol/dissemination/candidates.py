"""Candidates: asks peers that others name as members of a cube whether they are members.

Members name each other, and any of them may lie. A peer that is named is a candidate: the node says
that it is a member and asks whether the candidate is one. Before the answer the candidate forwards
nothing. Bounds hold for the candidates that one peer can name, and for those tried at a time. Lost
members are tried again, at growing intervals: a connection may have broken, a network may heal.
"""

from collections.abc import Callable, Iterable

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.context import Context

CANDIDATES_MAX = 256
"""Candidates that wait to be tried: bounds memory."""
NAMED_MAX = 64
"""Candidates that one peer can have named: as many as fit a message, and a quarter of all."""
TRIED_MAX = 8
"""Candidates tried at a time: bounds the messages that a liar can cause."""
FAILED_MAX = 512
"""Peers remembered that did not answer or were no members: bounds memory."""
LOST_MAX = 64
"""Lost members that are tried again: bounds memory."""
LOST_TRIES_MAX = 7
"""Tries of a lost member, the last about six minutes after the one before."""
FIRST_RETRY_S = 0.5
"""Time to the first try of a lost member; each later one takes three times as long."""


class Candidates:
    """The peers that may be members of one cube, and the questions to them."""

    __slots__ = (
        "_asked",
        "_candidates",
        "_failed",
        "_lost",
        "_open",
        "_timer",
        "ask",
        "idle",
        "parameters",
        "turn",
        "wanted",
    )

    def __init__(
        self,
        context: Context,
        *,
        wanted: Callable[[PeerId], bool],
        ask: Callable[[PeerId], None],
        idle: Callable[[], None],
    ) -> None:
        self.turn = context.turn
        self.parameters = context.parameters
        self.wanted = wanted
        """Whether the cube would keep a peer, were it a member."""
        self.ask = ask
        self.idle = idle
        """Called when all candidates were tried."""
        self._candidates: dict[PeerId, PeerId] = {}
        """Candidates, and the peer that named each."""
        self._asked: dict[PeerId, int] = {}
        """Peers that were asked and have not answered, with the timer that ends the wait."""
        self._failed: dict[PeerId, float] = {}
        """Peers that did not answer, or are no members, and when they were tried."""
        self._lost: dict[PeerId, tuple[float, int]] = {}
        """Lost members: when to try each again, and how often it was tried."""
        self._timer: int | None = None
        self._open = False

    def __len__(self) -> int:
        return len(self._candidates) + len(self._asked) + len(self._lost)

    def open(self) -> None:
        """The node is a member now: begin to try candidates."""
        self._open = True
        self._pump()

    def close(self) -> None:
        """Try no more candidates."""
        self._open = False
        self._candidates.clear()
        self._lost.clear()
        for timer in self._asked.values():
            self.turn.cancel(timer)
        self._asked.clear()
        self.turn.cancel(self._timer)

    # Hearing of candidates.

    def hear_of(self, peers: Iterable[PeerId], namer: PeerId) -> None:
        """A peer names others, or itself, as members."""
        named = sum(by == namer for by in self._candidates.values())
        for peer in peers:
            if named >= NAMED_MAX or len(self._candidates) >= CANDIDATES_MAX:
                break
            if self._is_news(peer):
                self._candidates[peer] = namer
                named += 1
        self._pump()

    def _is_news(self, peer: PeerId) -> bool:
        if peer in self._candidates or peer in self._asked or not self.wanted(peer):
            return False
        failed_s = self._failed.get(peer)
        return failed_s is None or self.turn.now - failed_s > self.parameters.contact_retry_s

    def lost_member(self, peer: PeerId) -> None:
        """A member is lost: it may come back."""
        self._lost.pop(peer, None)
        self._retry_later(peer, 0)

    def _retry_later(self, peer: PeerId, tries: int) -> None:
        if tries >= LOST_TRIES_MAX:
            return
        due_s = self.turn.now + self.turn.jitter(FIRST_RETRY_S * 3**tries)
        self._lost[peer] = (due_s, tries + 1)
        if len(self._lost) > LOST_MAX:
            del self._lost[next(iter(self._lost))]
        self._set_timer()

    # Trying them.

    def _pump(self) -> None:
        if not self._open:
            return
        for peer in list(self._candidates):
            if len(self._asked) >= TRIED_MAX:
                break
            del self._candidates[peer]
            if self.wanted(peer):
                self._try(peer)
        if not self._candidates and not self._asked:
            self.idle()

    def _try(self, peer: PeerId) -> None:
        """Say to a peer that the node is a member, and ask whether the peer is one."""
        self.expect(peer)
        self.ask(peer)

    def meet_again(self, peer: PeerId) -> None:
        """A peer sends as a member that was met: ask it, whether or not the cube would keep it."""
        failed_s = self._failed.get(peer, -self.parameters.contact_retry_s)
        tried = self.turn.now - failed_s < self.parameters.contact_retry_s
        if self._open and not tried and peer not in self._asked and len(self._asked) < TRIED_MAX:
            self._try(peer)

    def expect(self, peer: PeerId) -> None:
        """A peer was asked: wait for its answer."""
        self.turn.cancel(self._asked.get(peer))
        wait_s = self.parameters.rpc_timeout_s
        self._asked[peer] = self.turn.after(wait_s, lambda: self.failed(peer))

    def is_asked(self, peer: PeerId) -> bool:
        """Whether a peer was asked and has not answered."""
        return peer in self._asked

    def met(self, peer: PeerId) -> None:
        """A peer has said itself that it is a member."""
        self._candidates.pop(peer, None)
        self._failed.pop(peer, None)
        self._lost.pop(peer, None)

    def answered(self, peer: PeerId) -> None:
        """A peer that was asked has answered."""
        self.turn.cancel(self._asked.pop(peer, None))
        self._pump()

    def failed(self, peer: PeerId) -> None:
        """A peer does not answer: it is left alone for a while."""
        if peer in self._asked:
            self.turn.cancel(self._asked.pop(peer))
            self._failed.pop(peer, None)
            self._failed[peer] = self.turn.now
            if len(self._failed) > FAILED_MAX:
                del self._failed[next(iter(self._failed))]
        self._pump()

    def is_none(self, peer: PeerId) -> None:
        """A peer says that it is no member: wait for it no longer."""
        self._lost.pop(peer, None)
        self._candidates.pop(peer, None)
        self.failed(peer)

    def _set_timer(self) -> None:
        if self._timer is None and self._lost:
            due_s = min(due_s for due_s, _ in self._lost.values())
            delay_s = max(0.05, due_s - self.turn.now)
            self._timer = self.turn.after(delay_s, self._retry)

    def _retry(self) -> None:
        self._timer = None
        for peer, (due_s, tries) in list(self._lost.items()):
            if due_s <= self.turn.now + 0.05 and len(self._asked) < TRIED_MAX:
                del self._lost[peer]
                if self.wanted(peer):
                    self._retry_later(peer, tries)
                    self._try(peer)
        self._set_timer()
