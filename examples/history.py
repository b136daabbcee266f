"""Replay: who subscribes from the start gets all that there is, each event with its proof.

python examples/history.py
"""

import tempfile
from itertools import pairwise

import trio

from pulsarcast import Node


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Node.open(f"{folder}/shop") as shop:
            topic = await shop.ensure_topic("prices")
            for price in (10, 12, 9):
                await shop.publish(
                    topic, b"tea", attributes={"price": price, "unit": "EUR"}, ack="accepted"
                )

            async with Node.open(f"{folder}/late", bootstrap=shop.addresses) as late:
                # By the author's id and the topic's name, as one would write it down.
                name = f"{shop.peer_id}/prices"
                async with await late.subscribe(name, start="beginning") as events:
                    for _ in range(3):
                        event = await anext(events)
                        print(event.index, event.payload.decode(), event.attributes["price"])
                # It is on our own disk now, and stays readable.
                kept = [event async for event in late.history(name)]
                linked = all(event.parents == (before.id,) for before, event in pairwise(kept))
                print(f"{len(kept)} kept, each linked to the one before: {linked}")


if __name__ == "__main__":
    trio.run(main)
