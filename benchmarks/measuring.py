"""What a job costs: CPU seconds of all its processes, and what Spark's event log says of its tasks.

A Spark job is a Python process, a JVM and more Python processes below that, and some of them
outlive the one that was started. So the measuring process becomes the parent of whatever is
orphaned below it (Linux: child subreaper) and waits for all of them. That alone is not enough:
Spark's Python workers are children of a process that ignores their end, and the kernel then
forgets what they used. So every process of the job's session is also looked at while it lives.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import statistics
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

_SUBREAPER: Final = 36
"""PR_SET_CHILD_SUBREAPER."""

TASKS_MIN: Final = 4
"""Stages with fewer tasks have no skew to speak of."""
SAMPLE_S: Final = 0.1
STAGE_SHARE_MIN: Final = 0.05
"""Stages that take less than this share of a job's task time do not matter."""


class JobFailedError(Exception):
    """A measured process did not end well."""


@dataclass(frozen=True)
class Usage:
    """What one job took, with all its processes."""

    cpu_s: float
    wall_s: float
    rss_max_bytes: int
    """Of its largest process: the JVM."""


def become_subreaper() -> None:
    """Make this process the parent of its orphaned descendants, so that it can wait for them."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this needs Linux")


def run(
    command: Sequence[str], *, timeout_s: float, log: Path, environment: Mapping[str, str] = {}
) -> Usage:
    """Run one job to its end and say what it took; its output goes to a file."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    rss_max = 0
    failed: int | None = None
    seen_s: dict[int, float] = {}
    sampled_s = 0.0
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **environment},
        )
        ended_s: float | None = None
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid:
                rss_max = max(rss_max, usage.ru_maxrss * 1024)
                if pid == process.pid:
                    failed = os.waitstatus_to_exitcode(status)
                    ended_s = time.monotonic() - begun
                continue
            if time.monotonic() - sampled_s > SAMPLE_S:
                sampled_s = time.monotonic()
                seen_s.update(session_cpu_s(process.pid))
            if time.monotonic() - begun > timeout_s:
                failed = failed or -signal.SIGKILL
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    break  # What is left is not of the job.
            time.sleep(0.02)
        process.returncode = failed
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if failed:
        raise JobFailedError(f"{' '.join(command)} ended with {failed}; see {log}")
    waited_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Usage(
        cpu_s=round(max(waited_s, sum(seen_s.values())), 2),
        wall_s=round(ended_s or 0.0, 2),
        rss_max_bytes=rss_max,
    )


def session_cpu_s(session: int) -> dict[int, float]:
    """What each living process of a session has used by itself, threads included."""
    used: dict[int, float] = {}
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            text = Path(entry.path, "stat").read_text()
        except OSError:
            continue  # it has ended meanwhile
        fields = text.rpartition(")")[2].split()
        if int(fields[3]) == session:
            used[int(entry.name)] = (int(fields[11]) + int(fields[12])) * tick_s
    return used


# Spark's event log.

EVENT_LOG: Final = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}
"""Settings with which a job writes a log that is read here; its folder comes with the job."""


@dataclass(frozen=True)
class Stage:
    """One stage of a job, over all its tasks."""

    number: int
    name: str
    tasks: int
    task_s: float
    cpu_s: float
    gc_s: float
    longest_s: float
    median_s: float
    input_bytes: int
    shuffle_read_bytes: int
    shuffle_write_bytes: int
    spilled_bytes: int

    @property
    def skew(self) -> float:
        """The longest task against the median one."""
        return self.longest_s / self.median_s if self.median_s else 1.0


def read_stages(folder: Path) -> list[Stage]:
    """All stages that the event logs below a folder tell of, in their sequence."""
    tasks: dict[tuple[str, int], list[dict[str, Any]]] = {}
    names: dict[tuple[str, int], str] = {}
    for log in sorted(path for path in folder.iterdir() if path.is_file()):
        for event in _events(log):
            if event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics"):
                tasks.setdefault((log.name, event["Stage ID"]), []).append(event["Task Metrics"])
            elif event["Event"] == "SparkListenerStageCompleted":
                stage = event["Stage Info"]
                names[log.name, stage["Stage ID"]] = _name(stage)
    return [
        _stage(number, names.get((log, number), "?"), metrics)
        for (log, number), metrics in sorted(tasks.items())
    ]


def _events(log: Path) -> Iterator[dict[str, Any]]:
    with log.open() as lines:
        for line in lines:
            if '"SparkListenerTaskEnd"' in line[:64] or "StageCompleted" in line[:64]:
                yield json.loads(line)


def _name(stage: Mapping[str, Any]) -> str:
    """What a stage does: the operators that Spark names its data sets after."""
    scopes: list[str] = []
    for rdd in sorted(stage["RDD Info"], key=lambda each: each["RDD ID"]):
        scope = json.loads(rdd["Scope"])["name"] if rdd.get("Scope") else rdd["Name"]
        if not scopes or scopes[-1] != scope:
            scopes.append(scope)
    return " > ".join(scopes)[:160]


def _stage(number: int, name: str, metrics: Sequence[Mapping[str, Any]]) -> Stage:
    runs_s = [each["Executor Run Time"] / 1e3 for each in metrics]

    def total(*path: str) -> int:
        whole = 0
        for each in metrics:
            value: Any = each
            for key in path:
                value = value[key]
            whole += value
        return whole

    return Stage(
        number=number,
        name=name,
        tasks=len(metrics),
        task_s=round(sum(runs_s), 3),
        cpu_s=round(total("Executor CPU Time") / 1e9, 3),
        gc_s=round(total("JVM GC Time") / 1e3, 3),
        longest_s=max(runs_s),
        median_s=statistics.median(runs_s),
        input_bytes=total("Input Metrics", "Bytes Read"),
        shuffle_read_bytes=total("Shuffle Read Metrics", "Remote Bytes Read")
        + total("Shuffle Read Metrics", "Local Bytes Read"),
        shuffle_write_bytes=total("Shuffle Write Metrics", "Shuffle Bytes Written"),
        spilled_bytes=total("Disk Bytes Spilled"),
    )


def that_matter(stages: Iterable[Stage]) -> list[Stage]:
    """The stages whose skew says something: several tasks, and a share of the time worth having."""
    stages = list(stages)
    whole_s = sum(stage.task_s for stage in stages)
    return [
        stage
        for stage in stages
        if stage.tasks >= TASKS_MIN and stage.task_s >= STAGE_SHARE_MIN * whole_s
    ]


def summary(stages: Sequence[Stage], lines: int) -> dict[str, Any]:
    """What a job's stages come to."""
    skewed = sorted(that_matter(stages), key=lambda stage: -stage.skew)
    return {
        "task_cpu_s": round(sum(stage.cpu_s for stage in stages), 2),
        "gc_s": round(sum(stage.gc_s for stage in stages), 2),
        "tasks": sum(stage.tasks for stage in stages),
        "shuffle_bytes_per_line": round(sum(s.shuffle_write_bytes for s in stages) / lines, 2),
        "spilled_bytes_per_line": round(sum(s.spilled_bytes for s in stages) / lines, 2),
        "skew_max": round(skewed[0].skew, 2) if skewed else None,
        "longest_task_s": max((stage.longest_s for stage in stages), default=0.0),
        "stages": [
            {**asdict(stage), "skew": round(stage.skew, 2)}
            for stage in sorted(stages, key=lambda stage: -stage.cpu_s)[:8]
        ],
    }
