"""The client: a daemon's topics and events for any program, over HTTP.

    with Client() as client:
        topic = client.ensure_topic("weather")
        client.publish(topic, "sunny")
        with client.subscribe(topic, "dashboard", start="beginning") as events:
            for event in events:
                print(event.index, event.text())

`AsyncClient` is the same, awaited, under asyncio and Trio. Both need the extra `client` and know a
node only by what its daemon says (`pulsarcast.model.api`). What the daemon refuses raises
the same error as the library (`pulsarcast.model.errors`); where none can be reached, `Unreachable`.
"""

from pulsarcast.client.awaiting import AsyncClient, AsyncSubscription
from pulsarcast.client.blocking import Client, Subscription
from pulsarcast.client.connect import Target, find_target
from pulsarcast.client.contexts import Context, Contexts
from pulsarcast.client.errors import UnexpectedResponse, Unreachable

__all__ = [
    "AsyncClient",
    "AsyncSubscription",
    "Client",
    "Context",
    "Contexts",
    "Subscription",
    "Target",
    "UnexpectedResponse",
    "Unreachable",
    "find_target",
]
