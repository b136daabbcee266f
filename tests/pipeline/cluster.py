"""A real Spark cluster for tests: master and two workers on loopback, by the wheel's own scripts.

Its executors run an interpreter that has every library of ours and not our package: what they know
of it, a job has brought along. Whoever needs the cluster asks for the fixture `cluster` and runs
jobs as processes of their own, because one process has one session:

    def test_something(cluster: Cluster) -> None:
        output = cluster.run("-m", "tests.pipeline.cluster_jobs", cluster.master, ...)
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

ROOT = Path(__file__).parents[2]
WORKERS = 2
START_S_MAX = 180


@dataclass
class Cluster:
    """A running cluster."""

    master: str
    python: Path
    workers: list[int]
    environment: dict[str, str]

    def run(self, *arguments: str, timeout_s: float = 900) -> str:
        """Run a job's driver with our interpreter to its end; returns what it printed."""
        with self.start(*arguments) as driver:
            output, errors = driver.communicate(timeout=timeout_s)
        assert driver.returncode == 0, errors
        return output

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a job's driver with our interpreter."""
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def executors(self) -> list[int]:
        """The processes that run tasks at present."""
        return [
            pid
            for pid, parent, command in _processes()
            if parent in self.workers and "CoarseGrainedExecutorBackend" in command
        ]


def _processes() -> Iterator[tuple[int, int, str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            yield int(folder.name), parent, (folder / "cmdline").read_text()
        except (OSError, ValueError):
            continue  # it has just ended


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Start master and workers, and end them and all they started."""
    python = make_interpreter(folder / "interpreter")
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ},
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    port = _free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        place = ["--host", "127.0.0.1", "--webui-port", "0"]
        log = folder / "master.log"
        command = ["org.apache.spark.deploy.master.Master", "--port", str(port), *place]
        stack.enter_context(_daemon(command, environment, log))
        _wait_for(log, "I have been elected leader")
        workers = []
        for number in range(WORKERS):
            log = folder / f"worker-{number}.log"
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}")]
            command = ["org.apache.spark.deploy.worker.Worker", master, *place, *size]
            workers.append(stack.enter_context(_daemon(command, environment, log)))
            _wait_for(log, "Successfully registered with master")
        yield Cluster(master, python, workers, environment)


@contextmanager
def _daemon(command: list[str], environment: dict[str, str], log: Path) -> Iterator[int]:
    """A process of the cluster; its executors end with it."""
    script = Path(environment["SPARK_HOME"]) / "bin" / "spark-class"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(script), *command], env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(log: Path, text: str) -> None:
    end = time.monotonic() + START_S_MAX
    while text not in log.read_text():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def make_interpreter(folder: Path) -> Path:
    """An interpreter with all that ours has installed, but for this package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    own = Path(pyspark.__file__).parents[1]
    (target,) = folder.glob("lib/python*/site-packages")
    for entry in own.iterdir():
        if "pulsarcast" not in entry.name:
            (target / entry.name).symlink_to(entry)
    return folder / "bin" / "python"
