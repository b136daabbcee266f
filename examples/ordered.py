"""Total order: many publish at once, and everybody sees the same sequence.

python examples/ordered.py
"""

import tempfile

import trio

from pulsarcast import DeliveryOrder, Node, TopicSettings

COUNT = 20


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            Node.open(f"{folder}/ann") as ann,
            Node.open(f"{folder}/ben", bootstrap=ann.addresses) as ben,
            Node.open(f"{folder}/cid", bootstrap=ann.addresses) as cid,
        ):
            settings = TopicSettings(order=DeliveryOrder.TOTAL)
            topic = await ann.ensure_topic("ledger", settings)
            everyone = (ann, ben, cid)
            listening = [await node.subscribe(topic) for node in everyone]

            async def publish(node: Node, name: str) -> None:
                for number in range(COUNT):
                    await node.publish(topic, f"{name}{number}".encode(), ack="accepted")

            async with trio.open_nursery() as nursery:
                for node, name in zip(everyone, "abc", strict=True):
                    nursery.start_soon(publish, node, name)

            seen = [
                [(await anext(events)).payload for _ in range(3 * COUNT)] for events in listening
            ]
            print(
                f"{len(seen[0])} events, the same order everywhere: {seen[0] == seen[1] == seen[2]}"
            )


if __name__ == "__main__":
    trio.run(main)
