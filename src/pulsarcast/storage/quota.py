"""The quota: how much of a disk strangers' blocks may take (docs/spec/pulsarcast.md, The DHT).

A block that a peer sends is charged to the peer's place, the network prefix of its connection:
identities cost nothing, prefixes cost a little. A place may take as much as all places together
leave free. So a single place gets half of the quota, each of k greedy ones 1/(k + 1), and as much
remains for the next place (dynamic thresholds: Choudhury and Hahne, 1998). Nothing that was kept
makes way: peers were told that it is kept.
"""

from __future__ import annotations

from typing import Final

BYTES_MAX: Final = 2 << 30
"""The quota of a node: a tenth of what its owner may take by default (`storage.disk_bytes_max`)."""
BESIDE_BYTES: Final = 1024
"""Charged for a block beside its bytes: its row, the entries of four indexes, and what its pages
leave empty."""
PLACES_MAX: Final = 1024
"""Bounds the places that are told apart; further ones share the account of unknown places."""
UNKNOWN: Final = ""


class Quota:
    """What the blocks of strangers take, by place."""

    __slots__ = ("_by_place", "bytes_max", "bytes_used")

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._by_place: dict[str, int] = {}

    def charge(self, place: str, size: int) -> tuple[str, int] | None:
        """Charge a block of this size; returns the account and the charge, or None: no room."""
        account = place
        if place not in self._by_place and len(self._by_place) >= PLACES_MAX:
            account = UNKNOWN
        charge = size + BESIDE_BYTES
        used = self._by_place.get(account, 0)
        if used + charge > self.bytes_max - self.bytes_used:
            return None
        self.add(account, charge)
        return account, charge

    def add(self, account: str, charge: int) -> None:
        """Count a charge that was made."""
        self._by_place[account] = self._by_place.get(account, 0) + charge
        self.bytes_used += charge

    def refund(self, account: str, charge: int) -> None:
        """A block is gone, or is the node's own now."""
        left = self._by_place.pop(account) - charge
        assert left >= 0, "more was given back than was taken"
        if left:
            self._by_place[account] = left
        self.bytes_used -= charge

    def copy(self) -> Quota:
        """A quota of which the same is taken."""
        twin = Quota(self.bytes_max)
        twin._by_place = self._by_place.copy()
        twin.bytes_used = self.bytes_used
        return twin
