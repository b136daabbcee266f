"""Pulsarcast: publish/subscribe with no broker.

Every node is a peer; every topic and event is an immutable, signed, content-addressed descriptor.

    async with Node.open("home") as node:
        topic = await node.ensure_topic("weather")
        await node.publish(topic, b"sunny")

`Node` runs under Trio and needs the extra `network`. A program under asyncio takes `asyncio_node`,
which needs the extra `daemon`. Both are imported when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulsarcast.daemon.asyncio_node import asyncio_node
    from pulsarcast.model.errors import (
        Busy,
        Closed,
        Conflict,
        DiskFull,
        Gone,
        Halted,
        InsufficientScope,
        InvalidFilter,
        InvalidPayload,
        InvalidToken,
        LocalError,
        LogChanged,
        NotAllowed,
        NotFollowed,
        NotFound,
        PulsarcastError,
        ReaderNotFound,
        TakenOver,
        TooLarge,
        TopicNotFound,
        Unavailable,
    )
    from pulsarcast.model.publications import Publication
    from pulsarcast.model.topic_types import (
        DeliveryOrder,
        Dissemination,
        EventLinking,
        Retention,
        TopicSettings,
    )
    from pulsarcast.network.below import BelowSubscription
    from pulsarcast.network.node import Node
    from pulsarcast.network.subscriptions import Event, Subscription
    from pulsarcast.network.values import Published, Topic, Walked
    from pulsarcast.protocol.parameters import Parameters

__version__ = "0.1.0"

__all__ = [
    "BelowSubscription",
    "Busy",
    "Closed",
    "Conflict",
    "DeliveryOrder",
    "DiskFull",
    "Dissemination",
    "Event",
    "EventLinking",
    "Gone",
    "Halted",
    "InsufficientScope",
    "InvalidFilter",
    "InvalidPayload",
    "InvalidToken",
    "LocalError",
    "LogChanged",
    "Node",
    "NotAllowed",
    "NotFollowed",
    "NotFound",
    "Parameters",
    "Publication",
    "Published",
    "PulsarcastError",
    "ReaderNotFound",
    "Retention",
    "Subscription",
    "TakenOver",
    "TooLarge",
    "Topic",
    "TopicNotFound",
    "TopicSettings",
    "Unavailable",
    "Walked",
    "asyncio_node",
]

_HOMES = {
    "BelowSubscription": "network.below",
    "Busy": "model.errors",
    "Closed": "model.errors",
    "Conflict": "model.errors",
    "DeliveryOrder": "model.topic_types",
    "DiskFull": "model.errors",
    "Dissemination": "model.topic_types",
    "Event": "network.subscriptions",
    "EventLinking": "model.topic_types",
    "Gone": "model.errors",
    "Halted": "model.errors",
    "InsufficientScope": "model.errors",
    "InvalidFilter": "model.errors",
    "InvalidPayload": "model.errors",
    "InvalidToken": "model.errors",
    "LocalError": "model.errors",
    "LogChanged": "model.errors",
    "Node": "network.node",
    "NotAllowed": "model.errors",
    "NotFollowed": "model.errors",
    "NotFound": "model.errors",
    "Parameters": "protocol.parameters",
    "Publication": "model.publications",
    "Published": "network.values",
    "PulsarcastError": "model.errors",
    "ReaderNotFound": "model.errors",
    "Retention": "model.topic_types",
    "Subscription": "network.subscriptions",
    "TakenOver": "model.errors",
    "TooLarge": "model.errors",
    "Topic": "network.values",
    "TopicNotFound": "model.errors",
    "TopicSettings": "model.topic_types",
    "Unavailable": "model.errors",
    "Walked": "network.values",
    "asyncio_node": "daemon.asyncio_node",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the core alone needs no network."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value
