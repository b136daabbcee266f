"""Some nodes under load, and pictures of the page that one of them serves.

    python -m benchmarks.page_screenshot --out docs/pictures/page.png
    python -m benchmarks.page_screenshot --all DIR

The second makes one for each of light and dark, wide and narrow. Needs Chromium.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import trio

from tests.support.browser import Browser, find_chromium

NODES: Final = 6
START_S: Final = 40
SETTLE_S: Final = 10
SIZES: Final = ((1280, 900), (400, 900))
# With the default fan-out so few nodes would all be children of the root.
PROGRAM: Final = """
import functools, json, sys
from pathlib import Path
import trio
from pulsarcast.daemon import daemon
from pulsarcast.daemon.settings import load_settings
from pulsarcast.protocol.parameters import Parameters
daemon.Node.open = functools.partial(daemon.Node.open, parameters=Parameters(fanout=2))
home, flags = Path(sys.argv[1]), json.loads(sys.argv[2])
trio.run(lambda: daemon.run(home, load_settings(home, {}, flags=flags)))
"""
SHOWN: Final = "weather"
TOPICS: Final[dict[str, dict[str, Any]]] = {
    SHOWN: {"order": "none", "open": True, "linking": "CUSTOM"},
    "orders": {"order": "total"},
    "reviews": {"open": True},
    "deployments": {"order": "none", "open": True, "retention": {"count": 1000}},
}
RATES_HZ: Final = {SHOWN: 0.8, "orders": 1.5, "reviews": 0.5, "deployments": 0.1}
READERS: Final = ("billing", "alerts", "replies", "audit", "search", "dashboard")
ALIASES: Final = {"orders": "shop", "deployments": "ops"}
PEOPLE: Final = ("ann", "ben", "cal", "lisbon-roof", "bergen")
"""Names of peers; the last one has none."""
PLACES: Final = ("Lisbon", "Turku", "Bergen", "Ghent", "Kraków", "Ravenna")


class Desk:
    """A daemon, and its operator."""

    def __init__(self, home: Path) -> None:
        token = (home / "token").read_text().strip()
        self.client = httpx.AsyncClient(
            base_url=(home / "http").read_text().strip(),
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
        )

    async def ask(self, method: str, path: str, **body: Any) -> Any:
        """Ask, and hear no refusal."""
        answer = await self.client.request(method, path, json=body or None)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json() if answer.content else None


def _start(home: Path, flags: dict[str, Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(home), json.dumps(flags)])


@asynccontextmanager
async def fleet(folder: Path) -> AsyncIterator[list[Desk]]:
    """Daemons that know each other, each in a process of its own."""
    processes: list[subprocess.Popen[bytes]] = []
    desks: list[Desk] = []
    try:
        bootstrap: list[str] = []
        for number in range(NODES):
            home = folder / f"node-{number}"
            flags = {
                "node.listen": ["/ip4/127.0.0.1/tcp/0"],
                "http.address": "127.0.0.1:0",
                "node.bootstrap": bootstrap,
                "log.level": "warning",
            }
            processes.append(_start(home, flags))
            with trio.fail_after(START_S):
                while not (home / "http").exists():
                    await trio.sleep(0.1)
            desks.append(Desk(home))
            if number == 0:
                bootstrap = (await desks[0].ask("GET", "/v1/status"))["addresses"]
        yield desks
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(30)


async def read(desk: Desk, topic: str, name: str) -> None:
    """Subscribe, and be done with what comes; an archive is done with it later."""
    every = 97 if name == "archive" else 1
    done = f"/v1/topics/{topic}/readers/{name}/done"
    path = f"/v1/topics/{topic}/subscribe"
    async with desk.client.stream("GET", path, params={"name": name}, timeout=None) as answer:
        assert answer.is_success, f"{path}: {answer.status_code}"
        async for line in answer.aiter_lines():
            if line.startswith("id: ") and int(line[4:]) % every == 0:
                await desk.ask("POST", done, index=int(line[4:]))


async def publish(
    desk: Desk, topic: str, rate_hz: float, chance: random.Random, recent: list[str] | None
) -> None:
    """Publish at odd moments; with parents of our own where the topic takes them."""
    while True:
        await trio.sleep(chance.expovariate(rate_hz))
        observed = {
            "station": chance.choice(PLACES),
            "celsius": round(chance.gauss(11, 4), 1),
            "wind_mps": round(abs(chance.gauss(4, 3)), 1),
        }
        parents = sorted(set(chance.choices(recent, k=2))) if recent else []
        published = await desk.ask(
            "POST", f"/v1/topics/{topic}/events",
            payload=json.dumps(observed, ensure_ascii=False), attributes=observed,
            name="observation", parents=parents, ack="accepted",
        )  # fmt: skip
        if recent is not None:
            recent[:] = [*recent, published["id"]][-5:]


async def load(desks: list[Desk], nursery: trio.Nursery) -> dict[str, str]:
    """Names, topics, readers and publishers; the topics' ids by name."""
    chance = random.Random(7)
    peers = [(await desk.ask("GET", "/v1/status"))["peer"] for desk in desks]
    for desk in desks:
        for peer, person in zip(peers, PEOPLE, strict=False):
            await desk.ask("PUT", f"/v1/peer-names/{peer}", name=person)
    ids: dict[str, str] = {}
    for number, (name, settings) in enumerate(TOPICS.items()):
        author = desks[(number + 1) % NODES]
        topic = await author.ask("POST", "/v1/topics", name=name, settings=settings)
        ids[name] = topic["id"]
    for name, topic in ids.items():
        for desk, reader in zip(desks, READERS, strict=True):
            if name in ALIASES:
                await desk.ask("PUT", f"/v1/aliases/{ALIASES[name]}", topic=topic)
            nursery.start_soon(read, desk, topic, reader)
            await trio.sleep(0.3)
    for desk in desks:
        nursery.start_soon(read, desk, ids["orders"], "archive")
    for name, topic in ids.items():
        recent: list[str] | None = [] if "linking" in TOPICS[name] else None
        for desk in desks:
            own = random.Random(chance.random())
            nursery.start_soon(publish, desk, topic, RATES_HZ[name], own, recent)
    return ids


async def most_to_see(desks: list[Desk], topic: str) -> Desk:
    """The one in the middle of the topic's tree."""

    async def worth(desk: Desk) -> int:
        topics = (await desk.ask("GET", "/v1/topics"))["topics"]
        (found,) = (each for each in topics if each["id"] == topic)
        return 3 * (found["parent"] is not None) + 3 * bool(found["children"]) + len(found["lazy"])

    await trio.sleep(SETTLE_S)
    worths = [await worth(desk) for desk in desks]
    return desks[worths.index(max(worths))]


def look(
    program: str, url: str, topic: str, warm_s: float, pictures: dict[Path, tuple[str, int, int]]
) -> None:
    """Open the page, let it watch for a while, and take pictures."""
    with Browser(program) as browser:
        browser.resize(1280, 900)
        browser.open(url)
        browser.wait_for("document.querySelectorAll('#events g').length > 0")
        browser.evaluate(f"location.hash = '{topic}'")
        time.sleep(warm_s)
        for path, (scheme, width, height) in pictures.items():
            browser.prefer(scheme)
            browser.resize(width, height)
            time.sleep(2)
            tall = browser.evaluate("document.documentElement.scrollHeight")
            browser.resize(width, max(height, min(tall, 4000)))
            time.sleep(2)
            path.write_bytes(browser.picture())
        for complaint in browser.complaints():
            print(complaint, file=sys.stderr)


async def main(warm_s: float, pictures: dict[Path, tuple[str, int, int]]) -> None:
    """Everything, and away again."""
    program = find_chromium()
    assert program is not None, "Chromium is not installed"
    with tempfile.TemporaryDirectory() as folder:
        async with fleet(Path(folder)) as desks, trio.open_nursery() as nursery:
            ids = await load(desks, nursery)
            desk = await most_to_see(desks, ids[SHOWN])
            url = (await desk.ask("POST", "/v1/page"))["url"]
            await trio.to_thread.run_sync(look, program, url, ids[SHOWN], warm_s, pictures)
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/page.png"))
    parser.add_argument("--all", type=Path, metavar="DIR")
    parser.add_argument("--warm", type=float, default=150, help="seconds before the first picture")
    given = parser.parse_args()
    if given.all is None:
        wanted = {given.out: ("light", *SIZES[0])}
    else:
        wanted = {
            given.all / f"{scheme}-{size[0]}.png": (scheme, *size)
            for scheme in ("light", "dark")
            for size in SIZES
        }
    for path in wanted:
        path.parent.mkdir(parents=True, exist_ok=True)
    trio.run(main, given.warm, wanted)
