"""Meters for Prometheus: what an operator has to see of a node (docs/guides/operating.md).

Everything is read when it is asked for: between two scrapes meters cost nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Final, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from pulsarcast import __version__
from pulsarcast.daemon.service import Service
from pulsarcast.model.api import ReachKind

disable_created_metrics()  # type: ignore[no-untyped-call] # half of all lines, of use to nobody

TOPICS_MAX: Final = 1000
"""Topics with meters of their own; a scrape must not grow without bound."""


class Meters:
    """The registry of one daemon."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.requests = Counter(
            "pulsarcast_http_requests",
            "Requests that were answered.",
            ("operation", "method", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "pulsarcast_http_request_seconds",
            "How long answers took, subscriptions aside.",
            ("operation",),
            registry=self.registry,
        )

    def watch(self, service: Service) -> None:
        """Show the node as well."""
        self.registry.register(NodeCollector(service))


class NodeCollector(Collector):
    """What a node is and does, as meters."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> Iterator[Metric]:
        """Say nothing before it is asked: names must not be taken from a node that starts."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Read everything."""
        yield from self._node()
        yield from self._disk()
        yield from self._topics()

    def _node(self) -> Iterator[Metric]:
        service, node, insight = self._service, self._service.node, self._service.insight
        counters, held = insight.counters, insight.footprint()
        peers = node.peers()
        info = GaugeMetricFamily("pulsarcast_node", "The node.", labels=("peer", "version"))
        info.add_metric((node.peer_id, __version__), 1)
        yield info
        yield _gauge("ready", "Whether the node keeps its promises.", not service.reasons())
        yield _gauge("halted", "Whether it has fallen silent.", node.halted is not None)
        yield _gauge("start_time_seconds", "When it started.", service.started_us / 1e6)
        yield _gauge("peers_connected", "Peers with a connection.", len(peers))
        yield _gauge("peers_known", "Peers in the routing table.", insight.peers_known)
        reach = GaugeMetricFamily(
            "pulsarcast_reach", "1 for the way in which peers can dial the node.", labels=("kind",)
        )
        for kind in get_args(ReachKind):
            reach.add_metric((kind,), kind == node.reach.kind)
        yield reach
        found = node.reach
        yield _count("holes_punched", "Relayed connections that became direct.", found.punched)
        yield _count("holes_not_punched", "Those that did not.", found.not_punched)
        relaying = node.relaying
        relayed = sum(bool(peer.relay) for peer in peers)
        yield _gauge("relays", "Relays that have a reservation for it.", len(found.relays))
        yield _gauge("peers_relayed", "Peers connected through a relay.", relayed)
        yield _gauge("relay_reservations", "Peers with a reservation here.", relaying.peers)
        yield _gauge("relay_circuits", "Connections of others carried here.", relaying.circuits)
        yield _count("relayed_bytes", "Bytes carried between others.", relaying.bytes)
        yield _gauge("topics_followed", "Topics that are followed.", held["topics"])
        yield _count("messages_received", "Messages from peers.", counters.messages_in)
        yield _count("messages_sent", "Messages to peers.", counters.messages_out)
        yield _count("received_bytes", "Bytes from sockets of peers.", counters.bytes_in)
        yield _count("sent_bytes", "Bytes to sockets of peers.", counters.bytes_out)
        yield _count("publications", "Events published by programs here.", counters.publications)
        yield _count("deliveries", "Events delivered to readers' logs.", counters.deliveries)
        yield _count("commits", "Commits of the store.", counters.commits)
        queued = sum(peer.queued_bytes for peer in peers)
        yield _gauge("queue_bytes", "Bytes that wait for peers to take them.", queued)
        yield _gauge("replicas_held", "Blocks kept for others.", held["dht_held"])
        yield _gauge("outbox", "Requests to publish without an answer.", held["outbox"])
        yield _gauge("offers", "Events on their way into topics not followed.", held["offers"])
        yield _gauge("readers_connected", "Subscribers over HTTP.", service.readers)
        yield _count("readers_cut_off", "Subscribers that took nothing.", service.slow_readers)
        cut_off = CounterMetricFamily(
            "pulsarcast_peers_cut_off", "Connections that were closed for others.", labels=("why",)
        )
        for why, count in counters.cut_off.items():
            cut_off.add_metric((why,), count)
        yield cut_off
        ways = CounterMetricFamily(
            "pulsarcast_recoveries", "How often each way of recovering was taken.", labels=("way",)
        )
        for way, count in sorted(insight.recoveries.items()):
            ways.add_metric((way,), count)
        yield ways

    def _disk(self) -> Iterator[Metric]:
        service = self._service
        home, settings = service.node.home, service.settings
        own, strangers = service.insight.store_bytes, service.insight.strangers_bytes
        yield _gauge("store_bytes", "The size of the store, the part of strangers aside.", own)
        yield _gauge(
            "store_strangers_bytes", "The size of what the store keeps for strangers.", strangers
        )
        yield _gauge("store_bytes_max", "Its limit.", settings["storage.disk_bytes_max"])
        yield _gauge("disk_free_bytes", "Room on its disk.", shutil.disk_usage(home).free)

    def _topics(self) -> Iterator[Metric]:
        labels = ("topic", "name")
        newest = CounterMetricFamily(
            "pulsarcast_topic_events", "Events in the log of a topic.", labels=labels
        )
        held = GaugeMetricFamily(
            "pulsarcast_topic_held_back", "Events that wait for others.", labels=labels
        )
        missing = GaugeMetricFamily(
            "pulsarcast_topic_missing", "Gaps that are being fetched.", labels=labels
        )
        neighbours = GaugeMetricFamily(
            "pulsarcast_topic_neighbours", "Neighbours in the tree.", labels=labels
        )
        behind = GaugeMetricFamily(
            "pulsarcast_reader_behind", "Events a reader is not done with.",
            labels=(*labels, "reader"),
        )  # fmt: skip
        halted = GaugeMetricFamily(
            "pulsarcast_topic_halted", "Whether a topic does not go on.", labels=labels
        )
        term = GaugeMetricFamily(
            "pulsarcast_topic_term", "The term of a topic's sequencers, of which we are one.",
            labels=labels,
        )  # fmt: skip
        leads = GaugeMetricFamily(
            "pulsarcast_topic_leads", "Whether we are the acting one of them.", labels=labels
        )
        led = GaugeMetricFamily(
            "pulsarcast_topic_led", "Whether we know of an acting one.", labels=labels
        )
        for topic in self._service.node.topics()[:TOPICS_MAX]:
            key = (topic.id, topic.name)
            newest.add_metric(key, topic.newest)
            held.add_metric(key, topic.held_back)
            missing.add_metric(key, topic.missing)
            neighbours.add_metric(key, len(topic.children) + (topic.parent is not None))
            halted.add_metric(key, topic.halted is not None)
            if topic.sequencing is not None:
                term.add_metric(key, topic.sequencing.term)
                leads.add_metric(key, topic.sequencing.leads)
                led.add_metric(key, topic.sequencing.leader is not None)
            for reader in topic.readers:
                if not reader.name.startswith("~"):
                    behind.add_metric((*key, reader.name), reader.behind)
        yield from (newest, held, missing, neighbours, behind, halted, term, leads, led)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"pulsarcast_{name}", text, value=value)


def _count(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"pulsarcast_{name}", text, value=value)
