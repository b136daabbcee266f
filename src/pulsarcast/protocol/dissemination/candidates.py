"""Candidates: nobody counts as a member before it has told us so itself.

Members name each other, and any of them may lie. Whoever is named is a candidate: we say that we
are a member and ask whether it is one. Until it answers it carries nothing for us. How many
candidates one peer can make us try, and how many we try at a time, is bounded. Members that were
lost are tried again, ever more seldom: a connection may have broken, a network may heal.
"""

from collections.abc import Callable, Iterable

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.context import Context

CANDIDATES_MAX = 256
"""Peers said to be members that we have yet to try."""
NAMED_MAX = 64
"""How many of them one peer can have named: as many as fit a message."""
TRIED_MAX = 8
"""Peers that we try at a time."""
FAILED_MAX = 512
"""Peers remembered that were no members when we tried."""
LOST_MAX = 64
"""Members lost that we try again."""
LOST_TRIES_MAX = 7
FIRST_RETRY_S = 0.5


class Candidates:
    """Whom we have yet to meet, and whom we have asked."""

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
        """Whether we would keep a peer, were it a member."""
        self.ask = ask
        self.idle = idle
        """Called when everyone that we heard of was tried."""
        self._candidates: dict[PeerId, PeerId] = {}
        """Who is said to be a member, and by whom."""
        self._asked: dict[PeerId, int] = {}
        """Whom we asked and have no answer from, with the timer that ends the wait."""
        self._failed: dict[PeerId, float] = {}
        """When those were tried that did not answer, or are no members."""
        self._lost: dict[PeerId, tuple[float, int]] = {}
        """Members that are gone: when to try them again, and how often we have."""
        self._timer: int | None = None
        self._open = False

    def __len__(self) -> int:
        return len(self._candidates) + len(self._asked) + len(self._lost)

    def open(self) -> None:
        """We are a member ourselves: say so to those that we heard of."""
        self._open = True
        self._pump()

    def close(self) -> None:
        """Meet nobody any more."""
        self._open = False
        self._candidates.clear()
        self._lost.clear()
        for timer in self._asked.values():
            self.turn.cancel(timer)
        self._asked.clear()
        self.turn.cancel(self._timer)

    # Who might be a member.

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
        """A member is gone: it may come back."""
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
        """Say to a peer that we are a member, and ask whether it is one."""
        self.expect(peer)
        self.ask(peer)

    def meet_again(self, peer: PeerId) -> None:
        """A peer acts as if we had met: settle that, whether or not we would keep it."""
        failed_s = self._failed.get(peer, -self.parameters.contact_retry_s)
        tried = self.turn.now - failed_s < self.parameters.contact_retry_s
        if self._open and not tried and peer not in self._asked and len(self._asked) < TRIED_MAX:
            self._try(peer)

    def expect(self, peer: PeerId) -> None:
        """A peer was asked, and owes us an answer."""
        self.turn.cancel(self._asked.get(peer))
        wait_s = self.parameters.rpc_timeout_s
        self._asked[peer] = self.turn.after(wait_s, lambda: self.failed(peer))

    def is_asked(self, peer: PeerId) -> bool:
        """Whether a peer owes us an answer."""
        return peer in self._asked

    def met(self, peer: PeerId) -> None:
        """A peer has told us itself that it is a member."""
        self._candidates.pop(peer, None)
        self._failed.pop(peer, None)
        self._lost.pop(peer, None)

    def answered(self, peer: PeerId) -> None:
        """A peer that we asked has answered."""
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
        """A peer says that it is no member: there is nothing to wait for."""
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
