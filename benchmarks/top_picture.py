"""A picture of `pulsarcast top` looking at a node under load.

    python -m benchmarks.top_picture --out docs/pictures/top.svg [--looks 30]

Five daemons, three topics, readers and publishers on all of them. The picture names no font of
anybody's server.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console

from benchmarks.prometheus_ten import DAEMON, listen, publish, read, wait_for
from pulsarcast.cli.top import Rates, counts, picture
from pulsarcast.client import Client
from pulsarcast.model.api import SettingsView

NODES = 5
TOPICS = {"weather": "none", "orders": "total", "reviews": "per-publisher"}


def main() -> None:
    """Start, look, draw, end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--looks", type=int, default=30)
    given = parser.parse_args()
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            text = draw(Path(folder), given.looks, processes)
        finally:
            for process in processes:
                process.send_signal(signal.SIGKILL)
                process.wait(10)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(text, encoding="utf-8")


def draw(folder: Path, looks: int, processes: list[subprocess.Popen[bytes]]) -> str:
    """A look at the second node."""
    bootstrap: list[str] = []
    clients: list[Client] = []
    for index in range(NODES):
        home = folder / f"node-{index}"
        processes.append(subprocess.Popen([sys.executable, "-c", DAEMON, str(home), *bootstrap]))
        wait_for(home / "http")
        clients.append(Client(url=read(home / "http"), token=read(home / "token")))
        bootstrap = bootstrap or clients[0].status().addresses[:1]
    over = threading.Event()
    for at, (name, order) in enumerate(TOPICS.items()):
        author = clients[at]
        settings = SettingsView(order=order, open=order != "total")  # type: ignore[arg-type]
        topic = author.create_topic(name, settings).id
        for index, client in enumerate(clients):
            threading.Thread(
                target=listen, args=(client, topic, f"reader-{index}", over), daemon=True
            ).start()
        for client in clients[at : at + 2]:
            threading.Thread(target=publish, args=(client, topic, over), daemon=True).start()
    rates = Rates()
    client = clients[1]
    for _ in range(looks):
        status, topics, peers = client.status(), client.topics(), client.peers()
        rates.see(time.monotonic(), counts(status, topics))
        time.sleep(1)
    over.set()
    with Path("/dev/null").open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=130, file=nowhere)
        console.print(picture(status, topics, peers, rates))
        text = console.export_svg(title="pulsarcast top")
    text = re.sub(r"(?s)@font-face \{.*?\}", "", text)
    return re.sub(r"(?s)<!--.*?-->", "", text)


if __name__ == "__main__":
    main()
