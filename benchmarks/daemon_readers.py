"""What subscribers over HTTP cost a daemon: memory, CPU, and how soon they get an event.

    python -m benchmarks.daemon_readers [--idle 200] [--busy 50] [--rate 50] [--seconds 30]

One daemon, alone; `idle` subscribers on a topic where nothing happens, `busy` ones on a topic with
`rate` events a second, all in another process. Then the same again beside one more subscriber that
reads nothing at all. Prints one line of JSON for each.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import trio

from benchmarks.prometheus_ten import DAEMON

TICKS = os.sysconf("SC_CLK_TCK")
WARM_UP_S = 2.0


def main() -> None:
    """Measure twice, and print both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--idle", type=int, default=200)
    parser.add_argument("--busy", type=int, default=50)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        daemon = subprocess.Popen([sys.executable, "-c", DAEMON, str(home)])
        try:
            for with_stopped in (False, True):
                print(json.dumps(trio.run(measure, home, daemon.pid, given, with_stopped)))
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(20)


async def measure(
    home: Path, pid: int, given: argparse.Namespace, with_stopped: bool
) -> dict[str, object]:
    """One run."""
    with trio.fail_after(20):
        while not (home / "http").exists():
            await trio.sleep(0.05)
    url, secret = (home / "http").read_text().strip(), (home / "token").read_text().strip()
    host, _, port = url.rpartition("//")[2].partition(":")
    latencies: list[float] = []
    counts = [0] * given.busy
    headers = {"Authorization": f"Bearer {secret}"}
    async with (
        httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client,
        trio.open_nursery() as nursery,
    ):
        quiet = (await client.post("/v1/topics", json={"name": "quiet"})).json()["id"]
        busy = (await client.post("/v1/topics", json={"name": "busy"})).json()["id"]
        before = rss_mib(pid)

        async def open_stream(topic: str) -> trio.SocketStream:
            stream = await trio.open_tcp_stream(host, int(port))
            request = (
                f"GET /v1/topics/{topic}/subscribe HTTP/1.1\r\nHost: {host}:{port}\r\n"
                f"Authorization: Bearer {secret}\r\n\r\n"
            )
            await stream.send_all(request.encode())
            return stream

        async def listen(topic: str, at: int | None) -> None:
            stream = await open_stream(topic)
            held = b""
            async for data in stream:
                now_s = time.monotonic()
                if at is None:
                    continue
                *lines, held = (held + data).split(b"\n")
                for line in lines:
                    if line.startswith(b"data: "):
                        counts[at] += 1
                        latencies.append(now_s - float(json.loads(line[6:])["payload"]))

        for _ in range(given.idle):
            nursery.start_soon(listen, quiet, None)
        for at in range(given.busy):
            nursery.start_soon(listen, busy, at)
        # Kept, and never read from.
        stopped = [await open_stream(busy)] if with_stopped else []
        wanted = given.idle + given.busy + with_stopped
        while (await client.get("/v1/status")).json()["readers_connected"] < wanted:
            await trio.sleep(0.1)
        await trio.sleep(WARM_UP_S)
        connected = rss_mib(pid)
        cpu_s, published = cpu_of(pid), 0
        began_s = time.monotonic()

        async def publish() -> None:
            payload = {"payload": repr(time.monotonic()), "ack": "accepted"}
            answer = await client.post(f"/v1/topics/{busy}/events", json=payload)
            assert answer.status_code == 201, answer.text

        while time.monotonic() < began_s + given.seconds:
            nursery.start_soon(publish)
            published += 1
            await trio.sleep_until(trio.current_time() + 1 / given.rate)
        with trio.move_on_after(20):
            while sum(counts) < published * given.busy:
                await trio.sleep(0.05)
        cpu_s = cpu_of(pid) - cpu_s
        after = rss_mib(pid)
        for stream in stopped:
            await stream.aclose()
        nursery.cancel_scope.cancel()
    latencies.sort()
    return {
        "idle": given.idle,
        "busy": given.busy,
        "stopped": int(with_stopped),
        "events": published,
        "due": published * given.busy,
        "delivered": sum(counts),
        "each_exactly_once": counts == [published] * given.busy,
        "latency_ms_p50": round(1000 * latencies[len(latencies) // 2], 1),
        "latency_ms_p99": round(1000 * latencies[int(0.99 * len(latencies))], 1),
        "cpu_ms_per_event": round(1000 * cpu_s / published, 2),
        "cpu_ms_per_delivery": round(1000 * cpu_s / (published * given.busy), 3),
        "rss_mib_before": before,
        "rss_mib_connected": connected,
        "rss_mib_after": after,
    }


def rss_mib(pid: int) -> float:
    """What a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def cpu_of(pid: int) -> float:
    """What a process has used of the processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main()
