"""Many nodes in one process that join at once: `python crowd_worker.py FOLDER COUNT OPTIONS TOPIC`.

OPTIONS is JSON: the arguments of `Node.open`. Each node subscribes to the topic and waits for one
event; then all say, in lines of JSON, how long they took, and whom they were refused by.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import trio

from pulsarcast import Node
from pulsarcast.model.ids import peer_text

WAIT_S = 120.0
"""It only ends what hangs."""


async def join(
    home: Path, options: dict[str, Any], topic: str, done: trio.MemorySendChannel[Any]
) -> None:
    """Be one of them."""
    began_s = trio.current_time()
    async with Node.open(home, **options) as node:
        driver = node._running
        with trio.fail_after(WAIT_S):
            await driver.joined.wait()
            joined_s = trio.current_time() - began_s
            async with await node.subscribe(topic, "reader", "beginning") as events:
                subscribed_s = trio.current_time() - began_s
                async for _ in events:
                    break
        now_s = trio.current_time()
        refused = {
            peer_text(peer): [now_s - each.since_s, each.reason]
            for peer, each in driver.neighbours._refused.items()
        }
        cut_off = sum(driver.counters().cut_off.values())
        await done.send(
            {
                "joined_s": joined_s,
                "subscribed_s": subscribed_s,
                "refused": refused,
                "cut_off": cut_off,
            }
        )
        await trio.sleep_forever()


async def main() -> None:
    _, folder, count, options, topic = sys.argv
    done, heard = trio.open_memory_channel[Any](int(count))
    async with trio.open_nursery() as nursery:
        for number in range(int(count)):
            nursery.start_soon(join, Path(folder, str(number)), json.loads(options), topic, done)
        for _ in range(int(count)):
            sys.stdout.write(json.dumps(await heard.receive()) + "\n")
            sys.stdout.flush()
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
