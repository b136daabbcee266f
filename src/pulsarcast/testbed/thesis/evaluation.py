"""The thesis' evaluation (chapter 5), repeated on this machine: all runs, judged, in one table.

OUT/runs/NAME     one run: traces, summary.json, and asked.json, which says what it is a run of
OUT/tables        the traces of all of ours, as `pipeline ingest` lands them
OUT/verdict.json  what `pipeline check` says of them
OUT/report        what `pipeline report` draws of them, with what is in OUT/beside.json
OUT/results.json  all figures; OUT/table.md: those that the thesis has, beside the thesis'

It can be killed at any moment: a run counts once its summary is there, and is then not played
again; what is half done is cleared away and done anew.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from pulsarcast import __version__
from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.beside import Beside
from pulsarcast.testbed.scenarios.compare import Progress, no_progress
from pulsarcast.testbed.scenarios.workload import Summary
from pulsarcast.testbed.sessions import SUMMARY
from pulsarcast.testbed.thesis.beside import play_beside
from pulsarcast.testbed.thesis.judge import CLEAN, VERDICT, Verdicts, judge
from pulsarcast.testbed.thesis.play import INGESTED, play_apart
from pulsarcast.testbed.thesis.runs import Planned
from pulsarcast.testbed.thesis.table import (
    THESIS,
    Figures,
    Played,
    Seed,
    figures_of,
    make_beside,
    make_table,
)

ASKED: Final = "asked.json"
RESULTS: Final = "results.json"
TABLE: Final = "table.md"
LOCK: Final = ".lock"
LOCK_S_MAX: Final = 10.0
"""How long the processes of an evaluation that was killed may take to end."""

Tell = Callable[[str], None]


class Player(Protocol):
    """Plays a run; raises if it leaves no summary."""

    def __call__(self, run: Planned, progress: Progress, lock: int) -> None: ...


class Judge(Protocol):
    """Judges runs by their traces; None where there are none to judge."""

    def __call__(
        self,
        out: Path,
        runs: Sequence[Planned],
        tell: Tell,
        lock: int,
        beside: Callable[[Mapping[str, str]], Beside],
    ) -> Verdicts | None: ...


class RunResult(msgspec.Struct, kw_only=True):
    """One run: what was asked, what it came to, and the thesis' figures of it."""

    name: str
    beside: str | None
    """The run of the thesis that is like it."""
    asked: dict[str, Any]
    figures: Figures
    verdict: str | None
    summary: Summary


class Results(msgspec.Struct, kw_only=True):
    """All of it."""

    conditions: dict[str, Any]
    thesis: list[Seed]
    runs: list[RunResult]
    failed: dict[str, str]
    """Runs, or steps of the pipeline, and what is wrong with them."""
    not_played: list[str]
    ok: bool
    """Whether nothing failed; runs that nobody asked for yet do not count."""

    def to_json(self) -> str:
        """One line."""
        return msgspec.json.encode(self).decode()

    def to_text(self) -> str:
        """Tables, for people."""
        played = [
            Played(name=run.name, beside=run.beside, summary=run.summary, verdict=run.verdict)
            for run in self.runs
        ]
        return make_table(played, failed=self.failed)


def evaluate(
    plan: Sequence[Planned],
    out: Path,
    *,
    only: Sequence[Planned] | None = None,
    again: bool = False,
    at_a_time: int = 1,
    progress: Progress = no_progress,
    tell: Tell = lambda line: None,
    player: Player = play_apart,
    judging: Judge = judge,
) -> Results:
    """Play what has not been played of `only` (or all), judge all that there is, and tabulate.

    Of runs that are played at a time none is measured well, and nobody shows how far they are.
    """
    chosen = plan if only is None else only
    out.mkdir(parents=True, exist_ok=True)
    with _locked(out) as lock:
        if again:
            for run in chosen:
                _clear(run)
        for run in plan:
            _refuse_another(run)
        left = [run for run in chosen if _summary_of(run) is None]
        if at_a_time == 1:
            played = ((run, _play(run, progress, tell, lock, player)) for run in left)
            failed = {run.name: why for run, why in played if why is not None}
        else:
            failed = play_beside(
                left, at_a_time, lambda run: _play(run, no_progress, tell, lock, player)
            )
        done = {run.name: summary for run in plan if (summary := _summary_of(run)) is not None}
        verdicts: dict[str, str] = {}
        try:
            judged = judging(
                out,
                [run for run in plan if run.name in done],
                tell,
                lock,
                lambda verdicts: make_beside(_played(plan, done, verdicts)),
            )
            verdicts = {} if judged is None else judged.runs
        except LocalError as error:
            failed["pipeline"] = str(error)
        results = _results(plan, done, verdicts, failed)
        (out / RESULTS).write_text(results.to_json() + "\n")
        (out / TABLE).write_text(results.to_text())
    return results


def _play(run: Planned, progress: Progress, tell: Tell, lock: int, player: Player) -> str | None:
    """Play a run; what went wrong, or None."""
    _clear(run)
    run.folder.mkdir(parents=True)
    (run.folder / ASKED).write_text(msgspec.json.encode(run.asked()).decode() + "\n")
    tell(f"{run.name}: begins")
    began_s = time.monotonic()
    why = None
    try:
        player(run, progress, lock)
    except (LocalError, OSError) as error:
        why = str(error)
    if why is None and _summary_of(run) is None:
        why = "it left no summary"
    tell(f"{run.name}: {why or 'done'} after {time.monotonic() - began_s:.1f} s")
    return why


def _clear(run: Planned) -> None:
    # The summary first: what is left of a folder must not be taken for a run.
    (run.folder / SUMMARY).unlink(missing_ok=True)
    shutil.rmtree(run.folder, ignore_errors=True)


def _summary_of(run: Planned) -> Summary | None:
    """What a run came to; None where it has not been played to its end."""
    if run.live and not (run.folder / INGESTED).is_file():
        return None
    try:
        return msgspec.json.decode((run.folder / SUMMARY).read_bytes(), type=Summary)
    except FileNotFoundError:
        return None
    except msgspec.ValidationError as error:
        raise LocalError(
            f"{run.folder / SUMMARY} is of another version ({error}): choose another folder, "
            "or play it --again"
        ) from error
    except msgspec.DecodeError:
        return None  # cut off in the midst of writing


def _refuse_another(run: Planned) -> None:
    """Raise where a run has been played with other settings: it would be taken for this one."""
    if _summary_of(run) is None:
        return
    try:
        asked = msgspec.json.decode((run.folder / ASKED).read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        raise LocalError(f"{run.folder} is no run of this evaluation: remove it") from None
    wanted = run.asked()
    different = [name for name in wanted if asked.get(name) != wanted[name]]
    if different:
        raise LocalError(
            f"{run.name} was played with another {', '.join(different)}: choose another folder, "
            "or play it --again"
        )


def _results(
    plan: Sequence[Planned],
    done: dict[str, Summary],
    verdicts: dict[str, str],
    failed: dict[str, str],
) -> Results:
    runs = []
    for run in plan:
        summary = done.get(run.name)
        if summary is None:
            continue
        verdict = verdicts.get(run.name)
        # That a baseline loses something is a result; that ours does is a failure.
        if run.is_ours and not summary.ok:
            failed[run.name] = (
                f"{summary.lost:,} of {summary.due:,} are missing, {summary.duplicates:,} came "
                f"twice, {summary.strays:,} were published by nobody, "
                f"{summary.expected_due:,} were to be expected"
                + "".join(f"; {each}" for each in summary.died)
            )
        elif run.is_ours and "pipeline" not in failed and verdict != CLEAN:
            failed[run.name] = f"its verdict is not clean: {verdict} ({VERDICT})"
        runs.append(
            RunResult(
                name=run.name,
                beside=run.beside,
                asked=run.asked(),
                figures=figures_of(summary),
                verdict=verdict,
                summary=summary,
            )
        )
    return Results(
        conditions=_conditions(plan),
        thesis=list(THESIS),
        runs=runs,
        failed=failed,
        not_played=[run.name for run in plan if run.name not in done],
        ok=not failed,
    )


def _played(
    plan: Sequence[Planned], done: Mapping[str, Summary], verdicts: Mapping[str, str]
) -> list[Played]:
    return [
        Played(
            name=run.name,
            beside=run.beside,
            summary=done[run.name],
            verdict=verdicts.get(run.name),
        )
        for run in plan
        if run.name in done
    ]


def _conditions(plan: Sequence[Planned]) -> dict[str, Any]:
    """What all runs have in common; of this machine, what figures depend on."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "pulsarcast": __version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory_gib": round(pages * page_bytes / 2**30, 1),
        "trace_levels": sorted({run.options.trace_level or "none" for run in plan}),
        "acknowledged": sorted({run.options.ack for run in plan if run.is_ours}),
        "concurrency": sorted({run.options.concurrency for run in plan}),
    }


@contextmanager
def _locked(out: Path) -> Iterator[int]:
    """Keep others out of the folder, as long as any process of ours lives."""
    lock = os.open(out / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        deadline_s = time.monotonic() + LOCK_S_MAX
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    raise LocalError(f"another evaluation is going on in {out}") from None
                time.sleep(0.1)
        yield lock
    finally:
        os.close(lock)
