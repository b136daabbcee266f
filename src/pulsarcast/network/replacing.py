"""Going over: a direct connection takes the place of a relayed one, and no frame is lost.

docs/spec/reach.md, "Going over". Each direction goes over by itself: a node sends what waits on the
relayed connection, closes its stream of frames there, and says everything further on the direct
one. Its peer reads the one up to that close, and only then what came on the other. So the core sees
one connection, with its messages in order.

Where that fails, both connections end, at both ends, and the core hears of a loss like any other.
"""

from __future__ import annotations

from typing import Final

import trio

from pulsarcast.model.errors import RemoteError
from pulsarcast.network.link import Link
from pulsarcast.network.neighbour import Connection, Listener, Neighbour

REPLACES: Final = "replaces-relayed"
"""The feature in the Hello of a direct connection that comes in the place of a relayed one."""
REPLACE_S_MAX: Final = 60.0
"""How long the last frames of a relayed connection may take, once a direct one replaces it: twice
what a relay that carries 256 KiB a second needs for a full queue of 8 MiB."""
REPLACE_LOOK_S: Final = 0.01
"""Time between two looks whether they have come."""


class Replacing:
    """The connections of a node that others replace."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.count = 0
        """Relayed connections that direct ones have replaced."""

    def propose(self, current: Connection, link: Link) -> Connection:
        """The client's part, before its Hello: the peer may now end its frames on the old one."""
        current.link.may_finish = True
        connection = Connection(link)
        connection.replaces = current
        return connection

    def accept(self, neighbour: Neighbour | None, connection: Connection) -> Connection | None:
        """Go over, once the peer's Hello is there; None where there is nothing to replace.

        At the server that Hello says what the connection is for. What comes on it waits until the
        peer has ended its frames on the old one.
        """
        link, hello = connection.link, connection.hello
        old = None if neighbour is None else neighbour.connection
        if neighbour is None or old is None or old.hello is None or hello is None:
            return None
        is_meant = connection.replaces is (old if link.dialled else None)
        is_one = hello.instance == old.hello.instance
        if not is_meant or not is_one or link.relay is not None or old.link.relay is None:
            return None
        neighbour.connection, neighbour.leaving = connection, old
        old.link.may_finish = True
        link.hold_back()
        old.link.finish()
        self.count += 1
        return old

    async def see_through(
        self, neighbour: Neighbour, connection: Connection, old: Connection
    ) -> None:
        """Close the old connection once nothing is left on it; where that fails, the new one too.

        Each end closes it when it has the peer's last frame and the kernel has its own. An end that
        misses frames closes both, so both learn that something is lost.
        """
        with trio.move_on_after(REPLACE_S_MAX):
            while old.link.is_open and not (old.link.source_ended and old.link.has_finished):
                self._go_over(neighbour, connection, old)
                await trio.sleep(REPLACE_LOOK_S)
        old.link.close()
        if not old.link.source_ended:
            connection.link.close()
        self._go_over(neighbour, connection, old)

    def ended(self, neighbour: Neighbour) -> None:
        """The old connection has ended: the peer has closed it, or frames are missing."""
        connection, old = neighbour.connection, neighbour.leaving
        if connection is None or old is None:
            return
        if old.link.source_ended:
            self._go_over(neighbour, connection, old)
        else:
            connection.link.close()

    def _go_over(self, neighbour: Neighbour, connection: Connection, old: Connection) -> None:
        """Hear what came on the new connection, if the peer has ended its frames on the old one."""
        if neighbour.leaving is not old or not old.link.source_ended:
            return
        neighbour.leaving = None
        held, connection.held = connection.held, []
        try:
            self._listener.received(neighbour.peer, held)
        except RemoteError as error:
            connection.fault = f"the peer there broke a rule: {error}"
            self._listener.blamed(neighbour.peer, error)
            connection.link.close()
            return
        connection.link.let_go()
        self._listener.gather()
