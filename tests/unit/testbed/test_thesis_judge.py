import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pulsarcast import __version__
from pulsarcast.model.errors import LocalError
from pulsarcast.testbed import thesis_judge
from pulsarcast.testbed.thesis_judge import judge, read_verdicts
from pulsarcast.testbed.thesis_runs import Planned, choose
from tests.unit.testbed.thesis_fakes import make_summary, tiny_plan


class Pipeline:
    """Answers as the pipeline's commands do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, report: dict[str, Any]) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.report = report
        monkeypatch.setattr(thesis_judge, "_call", self._call)

    def _call(self, out: Path, steps: Sequence[Sequence[object]], *_: object) -> Iterator[str]:
        for name, *arguments in steps:
            folders = [each for each in arguments if isinstance(each, Path)]
            self.calls.append((str(name), *(str(folder.relative_to(out)) for folder in folders)))
            if name == "report" and self.report.get("falls"):
                raise LocalError("pipeline report ended with 1")
            yield json.dumps(self.report if name == "check" else {})


def report(**runs: tuple[dict[str, int], dict[str, int]]) -> dict[str, Any]:
    by_run = {name: {"findings": f, "unknown": u} for name, (f, u) in runs.items()}
    unknown: dict[str, int] = {}
    for _, reasons in runs.values():
        for reason, count in reasons.items():
            unknown[reason] = unknown.get(reason, 0) + count
    return {"lines": 7, "by_run": by_run, "unknown": unknown, "findings": {}}


def done(plan: list[Planned]) -> list[Planned]:
    for run in plan:
        run.folder.mkdir(parents=True)
        (run.folder / "summary.json").write_text(make_summary(run).to_json())
    return plan


def test_a_run_is_clean_or_it_is_said_what_is_the_matter() -> None:
    given = report(a=({}, {}), b=({"lost": 2}, {"seq_gap": 1}), c=({}, {"seq_gap": 3}))
    assert read_verdicts(given) == {
        "a": "clean",
        "b": "findings: lost 2",
        "c": "unknown: seq_gap 3",
    }


def test_what_belongs_to_no_run_makes_all_of_them_unknown() -> None:
    given = report(a=({}, {}))
    given["unknown"] = {"quarantined": 1, "seq_gap": 0}
    assert read_verdicts(given) == {"a": "unknown: quarantined 1"}


def test_ours_are_judged_together_and_the_live_one_by_what_it_streamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = done(choose(tiny_plan(tmp_path), ["ours", "floodsub", "ours-live"]))
    pipeline = Pipeline(monkeypatch, report(ours=({}, {})) | {"lines": 5})
    verdicts = judge(tmp_path, plan, lambda line: None, 0)
    assert pipeline.calls == [
        ("ingest", "runs/ours/traces", "tables"),
        ("check", "tables"),
        ("check", "runs/ours-live/tables"),
        ("report", "tables", "runs/ours-live/tables", "report"),
    ]
    assert verdicts is not None
    assert verdicts.runs == {"ours": "clean", "ours-live": "unknown: no lines"}
    assert verdicts.lines == 10


def test_what_was_judged_is_judged_again_only_where_a_run_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = done(tiny_plan(tmp_path)[:2])
    pipeline = Pipeline(monkeypatch, report(ours=({}, {})))
    first = judge(tmp_path, plan, lambda line: None, 0)
    assert judge(tmp_path, plan, lambda line: None, 0) == first
    assert len(pipeline.calls) == 3
    (plan[0].folder / "summary.json").write_text(make_summary(wall_s=1.0).to_json())
    judge(tmp_path, plan, lambda line: None, 0)
    assert len(pipeline.calls) == 6


def test_a_report_that_fails_leaves_no_verdict_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = done(tiny_plan(tmp_path)[:1])
    Pipeline(monkeypatch, report(ours=({}, {})) | {"falls": True})
    with pytest.raises(LocalError, match="report ended with 1"):
        judge(tmp_path, plan, lambda line: None, 0)
    assert not (tmp_path / "verdict.json").exists()


def test_baselines_alone_are_not_judged(tmp_path: Path) -> None:
    assert judge(tmp_path, tiny_plan(tmp_path)[2:4], lambda line: None, 0) is None


def test_commands_are_called_in_one_process_until_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other commands in their place: those below need no Spark."""
    script = thesis_judge.COMMANDS.replace('"pipeline", ', "")
    monkeypatch.setattr(thesis_judge, "COMMANDS", script)
    told: list[str] = []
    steps: list[list[str | Path]] = [["version"], ["version", "--json"], ["simulate", "nothing"]]
    with (tmp_path / "lock").open("w") as lock:
        answers = thesis_judge._call(tmp_path, steps, told.append, lock.fileno())
        assert next(answers).strip() == __version__
        assert json.loads(next(answers)) == {"version": __version__}
        with pytest.raises(LocalError, match="pipeline simulate ended with 1: see"):
            next(answers)
    assert told == ["pipeline version", "pipeline version", "pipeline simulate"]
    assert "Error" in (tmp_path / "pipeline.log").read_text()
