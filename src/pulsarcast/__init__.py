"""Pulsarcast: publish/subscribe with no broker.

Every node is a peer; every topic and event is an immutable, signed, content-addressed descriptor.

    async with Node.open("home") as node:
        topic = await node.create_topic("weather")
        await node.publish(topic, b"sunny")

`Node` needs the extra `network`; it is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulsarcast.model.errors import LocalError, PulsarcastError
    from pulsarcast.model.topic_types import (
        DeliveryOrder,
        Dissemination,
        EventLinking,
        Retention,
        TopicSettings,
    )
    from pulsarcast.network.node import Node
    from pulsarcast.network.subscriptions import Event, Subscription
    from pulsarcast.network.values import Published, Topic

__version__ = "0.1.0"

__all__ = [
    "DeliveryOrder",
    "Dissemination",
    "Event",
    "EventLinking",
    "LocalError",
    "Node",
    "Published",
    "PulsarcastError",
    "Retention",
    "Subscription",
    "Topic",
    "TopicSettings",
]

_HOMES = {
    "DeliveryOrder": "model.topic_types",
    "Dissemination": "model.topic_types",
    "Event": "network.subscriptions",
    "EventLinking": "model.topic_types",
    "LocalError": "model.errors",
    "Node": "network.node",
    "Published": "network.values",
    "PulsarcastError": "model.errors",
    "Retention": "model.topic_types",
    "Subscription": "network.subscriptions",
    "Topic": "network.values",
    "TopicSettings": "model.topic_types",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the core alone needs no network."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value
