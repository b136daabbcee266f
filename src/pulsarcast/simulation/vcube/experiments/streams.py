"""One publisher, many messages: what waiting for all acknowledgements costs (3.2.2, and beyond).

The paper's publisher waits for all acknowledgements of a message before it sends its next one.
While the trees do not change, messages of one source take the same ways and cannot overtake each
other, so it may as well go on. (Where members come and go they can: `first_rec` would be wrong.)
"""

from __future__ import annotations

import random

from pulsarcast.simulation.vcube.network import Network
from pulsarcast.simulation.vcube.node import Message
from pulsarcast.simulation.vcube.settings import Setting

_TOPIC = 0


def run(setting: Setting, rng: random.Random) -> dict[str, float]:
    """Publish as many messages as asked for, every `interval` on average."""
    newest: dict[tuple[int, int], int] = {}
    overtaken = 0

    def on_receive(node: int, message: Message) -> None:
        nonlocal overtaken
        overtaken += newest.get((node, message.source), -1) > message.counter
        newest[node, message.source] = message.counter

    network = Network.of(setting, on_receive=on_receive)
    network.begin_with(_TOPIC, range(setting.nodes), shared=True)
    publisher = rng.randrange(setting.nodes)
    at = 0.0
    for _ in range(setting.messages):
        network.publish_at(round(at), publisher, _TOPIC)
        at += rng.expovariate(1 / setting.interval)
    tally = network.run()
    assert network.held() == 0, "a message was never delivered"
    return {
        "deliveries": tally.receptions,
        "latency_mean": tally.latency / tally.receptions,
        "finished_at": tally.finished_at,
        "messages_per_1000": 1000 * setting.messages / tally.finished_at,
        "messages": sum(network.queues.copies),
        "overtaken": overtaken,
    }
