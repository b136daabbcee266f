"""Two nodes, one topic, one event.

python examples/hello.py
"""

import tempfile

import trio

from pulsarcast import Node


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            Node.open(f"{folder}/ann") as ann,
            Node.open(f"{folder}/ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.ensure_topic("weather")  # in which ann alone publishes
            async with await ben.subscribe(topic) as events:
                await ann.publish(topic, b"sunny, 23 degrees")
                event = await anext(events)
            print(f"{event.payload.decode()}, says {event.author}")


if __name__ == "__main__":
    trio.run(main)
