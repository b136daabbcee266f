"""A named subscription goes on where it stopped, though its node was away meanwhile.

python examples/resume.py
"""

import tempfile

import trio

from pulsarcast import Node


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Node.open(f"{folder}/station") as station:
            topic = await station.ensure_topic("weather")

            async with Node.open(f"{folder}/reader", bootstrap=station.addresses) as reader:
                async with await reader.subscribe(topic, "dashboard") as events:
                    await station.publish(topic, b"monday: sun", ack="accepted")
                    print((await anext(events)).payload.decode())
                    events.acknowledge()

            # The reader's node is off. Nothing is lost by that.
            await station.publish(topic, b"tuesday: rain", ack="accepted")
            await station.publish(topic, b"wednesday: snow", ack="accepted")

            async with Node.open(f"{folder}/reader", bootstrap=station.addresses) as reader:
                async with await reader.subscribe(topic, "dashboard") as events:
                    for _ in range(2):
                        print((await anext(events)).payload.decode())


if __name__ == "__main__":
    trio.run(main)
