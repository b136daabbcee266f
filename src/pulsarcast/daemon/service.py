"""The service: what the operations of the API work on."""

from __future__ import annotations

import logging
import shutil
import time
from typing import Final

from pulsarcast import __version__
from pulsarcast.daemon.aliases import AliasBook
from pulsarcast.daemon.local_names import PeerBook
from pulsarcast.daemon.sessions import Sessions
from pulsarcast.daemon.settings import Settings
from pulsarcast.daemon.tokens import TokenBook
from pulsarcast.model.api import RetentionView, StatusView
from pulsarcast.model.errors import DiskFull
from pulsarcast.network.insight import Insight
from pulsarcast.network.node import Node

DAY_S: Final = 86_400

_log = logging.getLogger(__name__)


class Service:
    """A running node, and what the daemon knows besides."""

    def __init__(self, node: Node, settings: Settings, tokens: TokenBook, sessions: Sessions):
        self.node = node
        self.insight = Insight(node)
        self.settings = settings
        self.tokens = tokens
        self.sessions = sessions
        self.aliases = AliasBook(node.home)
        self.peer_names = PeerBook(node.home)
        self.insight.naming.alias = self.aliases.get
        self.insight.naming.peer = self.peer_names.resolve
        self.started_us = time.time_ns() // 1000
        self.readers = 0
        """Subscribers that are connected now."""
        self.slow_readers = 0
        """Subscribers that were cut off since they took nothing."""
        self.url = ""
        self.stopping = False

    def cut_off(self) -> None:
        """Somebody took nothing for too long."""
        self.slow_readers += 1
        _log.warning("a connection took nothing for too long, and was closed")

    @property
    def retention(self) -> RetentionView:
        """What topics made here keep, where they say nothing themselves."""
        days = self.settings["storage.retention_days"]
        return RetentionView(age_s=days * DAY_S if days else None)

    def reasons(self) -> list[str]:
        """Why the node can promise nothing at the moment."""
        node, found = self.node, []
        if self.stopping:
            found.append("the daemon is stopping")
        if node.halted is not None:
            found.append(f"the node has halted: {node.halted}")
        disk = self.disk_complaint()
        if disk is not None:
            found.append(disk)
        return found

    def tips(self) -> list[str]:
        """What an operator might want to know, though it is no reason to be alarmed."""
        tips: list[str] = []
        if not self.node.peers():
            tips.append(self._no_peer())
        if not self.node.addresses:
            tips.append("the node advertises no address: set node.listen or node.announce")
        tips.extend(self.insight.naming.notes())
        return tips

    def _no_peer(self) -> str:
        """What to do without a peer."""
        named, remembered = len(self.insight.bootstrap()), self.insight.peers_remembered
        known = [
            f"{count} {kind} peer{'' if count == 1 else 's'}"
            for count, kind in ((named, "bootstrap"), (remembered, "remembered"))
            if count
        ]
        if known:
            return f"no peer is connected: the node goes on trying {' and '.join(known)}"
        return "no peer is connected: name one with --bootstrap, or wait for a peer to dial"

    def _state(self, reasons: list[str]) -> str:
        """Whether the node is ready, in words."""
        if reasons:
            return "; ".join(reasons)
        insight = self.insight
        is_expected = bool(insight.bootstrap() or insight.peers_remembered)
        return "ready, but alone: no peer answers" if self._is_alone and is_expected else "ready"

    @property
    def _is_alone(self) -> bool:
        return not self.node.peers() and not self.insight.peers_known

    def disk_complaint(self) -> str | None:
        """Why nothing new may go to the disk, if that is so."""
        used, most = self.insight.store_bytes, self.settings["storage.disk_bytes_max"]
        if used > most:
            return f"the store has {used} bytes, and storage.disk_bytes_max is {most}"
        free, least = (
            shutil.disk_usage(self.node.home).free,
            self.settings["storage.free_bytes_min"],
        )
        if free < least:
            return f"the disk has {free} bytes left, and storage.free_bytes_min is {least}"
        return None

    def check_room(self) -> None:
        """Refuse what would need more of the disk than there may be."""
        complaint = self.disk_complaint()
        if complaint is not None:
            raise DiskFull(complaint)

    def status(self) -> StatusView:
        """All of it, for people."""
        node = self.node
        insight = self.insight
        counters, footprint = insight.counters, insight.footprint()
        followed = node.topics()
        reasons = self.reasons()
        view = StatusView(
            peer=node.peer_id,
            addresses=list(node.addresses),
            version=__version__,
            started_us=self.started_us,
            incarnation=insight.incarnation,
            halted=node.halted,
            ready=not reasons,
            reasons=reasons,
            state=self._state(reasons),
            peers=len(node.peers()),
            peers_known=insight.peers_known,
            bootstrap=insight.bootstrap(),
            peers_remembered=insight.peers_remembered,
            reach=node.reach,
            relaying=node.relaying,
            topics=len(followed),
            subscriptions=sum(topic.subscribed for topic in followed),
            starved=sum(topic.starved for topic in followed),
            messages_in=counters.messages_in,
            messages_out=counters.messages_out,
            bytes_in=counters.bytes_in,
            bytes_out=counters.bytes_out,
            publications=counters.publications,
            deliveries=counters.deliveries,
            commits=counters.commits,
            replicas_held=footprint["dht_held"],
            store_bytes=insight.store_bytes,
            disk_free_bytes=shutil.disk_usage(node.home).free,
            disk_bytes_max=self.settings["storage.disk_bytes_max"],
            retention_default=self.retention,
            trace=self.settings["trace.level"] or None,
            readers_connected=self.readers,
            tips=self.tips(),
        )
        return self.peer_names.fill(view)
