"""Ten daemons, scraped by a Prometheus server, with our alert rules loaded.

    python -m benchmarks.prometheus_ten [--nodes 10] [--seconds 60]

Needs Debian's package `prometheus`. One topic, nodes subscribed over HTTP, ten events a second.
Half way one daemon is killed. Prints what an operator would ask, as Prometheus answers it, and
which alerts fire. One line of JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from pulsarcast.client import Client
from pulsarcast.model.api import SettingsView

DAEMON = """
import sys, trio
from pathlib import Path
from pulsarcast.daemon.daemon import run
from pulsarcast.daemon.settings import load_settings
home = Path(sys.argv[1])
flags = {"node.listen": ["/ip4/127.0.0.1/tcp/0"], "http.address": "127.0.0.1:0"}
if len(sys.argv) > 2:
    flags["node.bootstrap"] = sys.argv[2:]
trio.run(run, home, load_settings(home, {}, flags))
"""
ALERTS = Path(__file__).parent.parent / "deploy" / "alerts.yml"
QUESTIONS = {
    "nodes up": "count(up == 1)",
    "nodes ready": "sum(pulsarcast_ready)",
    "events delivered a second, all nodes": "sum(rate(pulsarcast_deliveries_total[20s]))",
    "messages sent a second, all nodes": "sum(rate(pulsarcast_messages_sent_total[20s]))",
    "readers furthest behind": "max(pulsarcast_reader_behind)",
    "bytes queued for peers": "sum(pulsarcast_queue_bytes)",
    "peers of the loneliest node": "min(pulsarcast_peers_connected)",
    "blocks kept for others": "sum(pulsarcast_replicas_held)",
    "bytes of the largest store": "max(pulsarcast_store_bytes)",
    "gaps being fetched": "sum(pulsarcast_topic_missing)",
    "p99 of an answer, ms": (
        "1000 * histogram_quantile(0.99, "
        "sum by (le) (rate(pulsarcast_http_request_seconds_bucket[20s])))"
    ),
}


def main() -> None:
    """Start everything, ask, print, end everything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    server = shutil.which("prometheus")
    if server is None:
        sys.exit("no Prometheus here (Debian: apt-get install prometheus)")
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(json.dumps(run(Path(folder), server, given, processes)))
        finally:
            for process in processes:
                process.send_signal(signal.SIGKILL)
                process.wait(10)


def run(
    folder: Path, server: str, given: argparse.Namespace, processes: list[subprocess.Popen[bytes]]
) -> dict[str, Any]:
    """All of it."""
    homes = [folder / f"node-{index}" for index in range(given.nodes)]
    bootstrap: list[str] = []
    for home in homes:
        words = [sys.executable, "-c", DAEMON, str(home), *bootstrap]
        processes.append(subprocess.Popen(words))
        wait_for(home / "http")
        if not bootstrap:
            with Client(url=read(home / "http"), token=read(home / "token")) as client:
                bootstrap = client.status().addresses[:1]
    port = free_port()
    (folder / "prometheus.yml").write_text(config(homes))
    words = [
        server,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    processes.append(subprocess.Popen(words))
    over = threading.Event()
    clients = [Client(url=read(home / "http"), token=read(home / "token")) for home in homes]
    topic = clients[0].create_topic("weather", SettingsView(order="none")).id
    readers = [
        threading.Thread(target=listen, args=(client, topic, f"reader-{index}", over), daemon=True)
        for index, client in enumerate(clients[:-1])
    ]
    for reader in readers:
        reader.start()
    load = threading.Thread(target=publish, args=(clients[0], topic, over), daemon=True)
    load.start()
    time.sleep(given.seconds / 2)
    answers = {name: ask(port, question) for name, question in QUESTIONS.items()}
    # One node dies. Whoever looks must see it.
    processes[given.nodes - 1].send_signal(signal.SIGKILL)
    firing: list[str] = []
    deadline_s = time.monotonic() + given.seconds / 2 + 150
    while time.monotonic() < deadline_s and not firing:
        time.sleep(2)
        firing = alerts(port)
    over.set()
    return {"nodes": given.nodes, **answers, "alerts after one node was killed": firing}


def config(homes: list[Path]) -> str:
    """A job for each daemon, since each has a token of its own."""
    jobs = "".join(
        f"  - job_name: {home.name}\n"
        f"    authorization: {{credentials_file: {home}/token}}\n"
        f"    static_configs: [{{targets: ['{read(home / 'http').removeprefix('http://')}']}}]\n"
        "    relabel_configs: [{target_label: job, replacement: pulsarcast}]\n"
        for home in homes
    )
    return (
        "global: {scrape_interval: 2s, evaluation_interval: 2s}\n"
        f"rule_files: ['{ALERTS.absolute()}']\nscrape_configs:\n{jobs}"
    )


def listen(client: Client, topic: str, name: str, over: threading.Event) -> None:
    """A reader of one node."""
    try:
        with client.subscribe(topic, name) as events:
            for _ in events:
                if over.is_set():
                    return
    except Exception:
        if not over.is_set():
            raise


def publish(client: Client, topic: str, over: threading.Event) -> None:
    """Ten events a second."""
    number = 0
    while not over.wait(0.1):
        number += 1
        client.publish(topic, str(number), ack="accepted")


def ask(port: int, question: str) -> float | None:
    """One number."""
    found = get(port, f"query?query={urllib.parse.quote(question)}")["result"]
    return round(float(found[0]["value"][1]), 2) if found else None


def alerts(port: int) -> list[str]:
    """What fires."""
    found = get(port, "alerts")["alerts"]
    return sorted({each["labels"]["alertname"] for each in found if each["state"] == "firing"})


def get(port: int, path: str) -> Any:
    """What Prometheus answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=10) as answer:
        return json.load(answer)["data"]


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    deadline_s = time.monotonic() + 30
    while not path.exists():
        if time.monotonic() > deadline_s:
            raise TimeoutError(path)
        time.sleep(0.05)


def read(path: Path) -> str:
    """A short file."""
    return path.read_text(encoding="utf-8").strip()


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
