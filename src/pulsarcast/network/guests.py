"""Guests: peers that dialled and do not speak our protocol.

A guest is no neighbour and never takes the place of one. It may ask who we are, ping, and use what
else the host serves. Guests are few, few of one place, and each is gone after a while, unless a
service of ours needs its connection for longer (`Link.is_held`).
"""

from __future__ import annotations

from typing import Final

import trio

from pulsarcast.model.ids import PeerId
from pulsarcast.network.link import Link

GUESTS_MAX: Final = 32
"""Few beside the connections of a host, of which there may be 1,024."""
GUESTS_PER_PLACE_MAX: Final = 8
"""Guests of one network prefix: one machine does not keep all others out."""
GUESTS_PER_PEER_MAX: Final = 2
"""Connections of one guest. js-libp2p drops the newer of two relayed ones, and a peer that goes
over from a relayed connection to a direct one has both for a moment."""
GUEST_S: Final = 60.0
"""How long a guest stays that no service holds: time to ask who we are, and to ping."""


class Guests:
    """The connections to guests."""

    def __init__(self) -> None:
        self._since_s: dict[Link, float] = {}

    def __len__(self) -> int:
        return len(self._since_s)

    def __contains__(self, link: Link) -> bool:
        return link in self._since_s

    def link_to(self, peer: PeerId) -> Link | None:
        """The connection to a guest, a direct one if there is one."""
        found = [link for link in self._since_s if link.peer == peer]
        return min(found, key=lambda link: link.relay is not None, default=None)

    def dialled(self) -> list[Link]:
        """The connections that this node dialled: to relays that are none of our peers."""
        return [link for link in self._since_s if link.dialled]

    def welcome(self, link: Link) -> None:
        """Take a guest in, or close its connection; a third of its peer replaces the oldest."""
        of_peer = [each for each in self._since_s if each.peer == link.peer]
        for guest in of_peer[: len(of_peer) + 1 - GUESTS_PER_PEER_MAX]:
            del self._since_s[guest]
            guest.close(goodbye=True)
        of_place = sum(each.place == link.place for each in self._since_s)
        if len(self._since_s) >= GUESTS_MAX or of_place >= GUESTS_PER_PLACE_MAX:
            link.close(goodbye=True)
        else:
            self._since_s[link] = trio.current_time()

    def forget(self, link: Link) -> None:
        """A connection has ended."""
        self._since_s.pop(link, None)

    async def see_off(self, link: Link) -> None:
        """Close a guest's connection when its time is up."""
        until_s = self._since_s[link] + GUEST_S
        while until_s > trio.current_time():
            await trio.sleep_until(until_s)
            until_s = link.held_until_s
            if link.circuits:
                until_s = max(until_s, trio.current_time() + GUEST_S)
        link.close(goodbye=True)
