"""Places: the addresses of simulated nodes, and who can dial whom.

A node without a place can be dialled by every other node, by its peer id alone: a world that gives
no places has no addresses. A node with a place has an address prefix, and may be behind a NAT or a
firewall: then only nodes behind the same one can dial it.
"""

from __future__ import annotations

from typing import NamedTuple

PORT = 4001


class Place(NamedTuple):
    """Where a node is in the address space."""

    prefix: str
    """The first three bytes of the IPv4 address that nodes outside see: `7.0.3`."""
    behind: int | None = None
    """The NAT or firewall that drops dials from outside; None: there is none."""
    translated: bool = False
    """Whether that is a NAT: nodes behind it see each other at addresses of their own network."""

    @property
    def is_public(self) -> bool:
        """Whether nodes everywhere can dial it."""
        return self.behind is None

    @property
    def interface(self) -> str:
        """The prefix of the node's own network interface."""
        return f"192.168.{(self.behind or 0) % 256}" if self.translated else self.prefix

    def can_be_dialled_from(self, other: Place) -> bool:
        """Whether a dial from another place gets through."""
        return self.behind is None or self.behind == other.behind

    def is_near(self, other: Place) -> bool:
        """Whether both are in one network, as their interfaces show."""
        if self.translated or other.translated:
            return self.behind is not None and self.behind == other.behind
        return self.prefix == other.prefix

    def seen_from(self, other: Place) -> str:
        """The prefix of the address at which another place sees this one."""
        return self.interface if self.is_near(other) else self.prefix

    def addresses(self, index: int) -> tuple[str, ...]:
        """The addresses that a node here listens at, as far as it knows."""
        return (_address(self.interface, index),)

    def address_for(self, other: Place, index: int) -> str:
        """The address at which another place sees the node."""
        return _address(self.seen_from(other), index)

    def has_moved(self, before: Place) -> bool:
        """Whether the address is another one than before, so that connections do not last."""
        return (self.prefix, self.interface) != (before.prefix, before.interface)


def network_of(prefix: str) -> str:
    """A prefix as drivers name it."""
    return f"{prefix}.0/24"


def _address(prefix: str, index: int) -> str:
    return f"/ip4/{prefix}.{index % 254 + 1}/tcp/{PORT + index}"
