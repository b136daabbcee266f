"""A workload for four nodes, small enough for a test."""

import json
from pathlib import Path

NODES = 4
EVENTS_EACH = 6
# Everyone publishes in "all" and in a topic of its own pair, and subscribes where it publishes.
DUE = NODES * (EVENTS_EACH // 2) * NODES + NODES * (EVENTS_EACH // 2) * 2


def write_workload(folder: Path) -> Path:
    lines: list[object] = [
        {"type": "topic", "name": name, "node": node, "author": "a", "totalNumberEvents": 1}
        for name, node in (("all", "node-1"), ("even", "node-2"), ("odd", "node-3"))
    ]
    for user in range(NODES):
        own = "odd" if user % 2 else "even"
        events = [
            {"internalId": user * EVENTS_EACH + i, "topic": own if i % 2 else "all", "ups": i}
            for i in range(EVENTS_EACH)
        ]
        lines.append(
            {
                "type": "user",
                "name": f"user-{user}",
                "node": f"node-{user + 1}",
                "events": events,
                "subscriptions": {"all": True, own: True},
            }
        )
    path = folder / "workload.ndjson"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
