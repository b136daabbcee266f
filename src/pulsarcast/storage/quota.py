"""The quota: how much of a disk strangers may take (docs/spec/pulsarcast.md, The DHT).

A block that a peer sends is charged to the peer's place, the network prefix of its connection, and
an event of a tree that the node keeps to the place of the peer that it began to keep it for:
identities cost nothing, prefixes cost a little. A place may take as much as all places together
leave free. So a single place gets half of the quota, each of k greedy ones 1/(k + 1), and as much
remains for the next place (dynamic thresholds: Choudhury and Hahne, 1998). Nothing that was kept
makes way: peers were told that it is kept.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from pulsarcast.model.ids import Cid

BYTES_MAX: Final = 2 << 30
"""The quota of a node: a tenth of what its owner may take by default (`storage.disk_bytes_max`)."""
BESIDE_BYTES: Final = 1024
"""Charged for a block beside its bytes: its row, the entries of four indexes, and what its pages
leave empty."""
PLACES_MAX: Final = 1024
"""Bounds the places that are told apart; further ones share the account of unknown places."""
UNKNOWN: Final = ""

Log: TypeAlias = Cid | int
"""A topic's log, as its store names it."""


def charge_of(block: bytes) -> int:
    """What is charged for a block, or for an event."""
    return len(block) + BESIDE_BYTES


class Quota:
    """What is kept for strangers takes, by place."""

    __slots__ = ("_by_place", "_logs", "bytes_max", "bytes_used")

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._by_place: dict[str, int] = {}
        self._logs: dict[Log, tuple[str, int]] = {}
        """The logs that are kept for strangers: the account, and what is charged to it."""

    def account(self, place: str, charge: int) -> str | None:
        """The account of a place, or None where there is no room for such a charge."""
        account = place
        if place not in self._by_place and len(self._by_place) >= PLACES_MAX:
            account = UNKNOWN
        used = self._by_place.get(account, 0)
        if charge and used + charge > self.bytes_max - self.bytes_used:
            return None
        return account

    def add(self, account: str, charge: int) -> None:
        """Charge an account."""
        self._by_place[account] = self._by_place.get(account, 0) + charge
        self.bytes_used += charge

    def refund(self, account: str, charge: int) -> None:
        """What was charged is gone, or is the node's own now."""
        if not charge:
            return
        left = self._by_place.pop(account) - charge
        assert left >= 0, "more was given back than was taken"
        if left:
            self._by_place[account] = left
        self.bytes_used -= charge

    def charge_log(self, log: Log, account: str, charge: int) -> bool:
        """An event came into a log that is kept for a stranger; returns whether it is the first."""
        known = self._logs.get(log)
        account, charged = known or (account, 0)
        self._logs[log] = (account, charged + charge)
        self.add(account, charge)
        return known is None

    def is_charged(self, log: Log) -> bool:
        """Whether a log is kept for a stranger."""
        return log in self._logs

    def refund_part(self, log: Log, charge: int) -> None:
        """Events of a log were dropped."""
        account, charged = self._logs[log]
        refund = min(charge, charged)  # Events of the node itself were charged to no place.
        self._logs[log] = (account, charged - refund)
        self.refund(account, refund)

    def refund_log(self, log: Log) -> None:
        """A log is gone, or is the node's own now."""
        self.refund(*self._logs.pop(log, (UNKNOWN, 0)))

    def copy(self) -> Quota:
        """A quota of which the same is taken."""
        twin = Quota(self.bytes_max)
        twin._by_place = self._by_place.copy()
        twin._logs = self._logs.copy()
        twin.bytes_used = self.bytes_used
        return twin
