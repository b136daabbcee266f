"""A topic with one publisher: everybody else asks it to publish for them, and stays the author.

python examples/request.py
"""

import tempfile

import trio

from pulsarcast import Node, TopicSettings


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            Node.open(f"{folder}/editor") as editor,
            Node.open(f"{folder}/reporter", bootstrap=editor.addresses) as reporter,
        ):
            only_me = TopicSettings(publishers=(editor.identity,))
            news = await editor.create_topic("news", only_me)
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
