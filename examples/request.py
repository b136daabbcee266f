"""A topic in which its author alone publishes: others ask it to, and stay authors of their events.

python examples/request.py
"""

import tempfile

import trio

from pulsarcast import Node


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            Node.open(f"{folder}/editor") as editor,
            Node.open(f"{folder}/reporter", bootstrap=editor.addresses) as reporter,
        ):
            news = await editor.ensure_topic("news")
            async with await reporter.subscribe(news) as events:
                await reporter.publish(news, b"it rains", idempotency_key="story-1", ack="accepted")
                event = await anext(events)
            print(
                f"{event.payload.decode()}: "
                f"by the reporter {event.author == reporter.peer_id}, "
                f"published by the editor {event.publisher == editor.peer_id}"
            )


if __name__ == "__main__":
    trio.run(main)
