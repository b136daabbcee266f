import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pulsarcast import __version__
from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.beside import Beside, Table, read_beside
from pulsarcast.testbed.thesis import judge as thesis_judge
from pulsarcast.testbed.thesis.judge import Commands, Verdicts, judge, read_verdicts
from pulsarcast.testbed.thesis.runs import Planned, choose
from tests.unit.testbed.thesis.fakes import make_summary, tiny_plan


class Pipeline:
    """Answers as the pipeline's commands do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, report: dict[str, Any]) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.report = report
        monkeypatch.setattr(Commands, "call", self._call)

    def _call(self, name: str, *arguments: object) -> str:
        folders = [each for each in arguments if isinstance(each, Path)]
        below = [str(each).partition("/here/")[2] for each in folders]
        self.calls.append((name, *below))
        if name == "report" and self.report.get("falls"):
            raise LocalError("pipeline report ended with 1")
        return json.dumps(self.report if name == "check" else {})


def beside(verdicts: Mapping[str, str]) -> Beside:
    return Beside(tables=[Table(title="t", head=["run"], rows=[[run] for run in verdicts], own=[])])


def judged(out: Path, plan: list[Planned]) -> Verdicts | None:
    return judge(out, plan, lambda line: None, 0, beside)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


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
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = done(choose(tiny_plan(out), ["ours", "floodsub", "ours-live"]))
    pipeline = Pipeline(monkeypatch, report(ours=({}, {})) | {"lines": 5})
    verdicts = judged(out, plan)
    assert pipeline.calls == [
        ("ingest", "runs/ours/traces", "tables"),
        ("check", "tables"),
        ("check", "runs/ours-live/tables"),
        ("report", "tables", "runs/ours-live/tables", "report", ".beside.json"),
    ]
    assert verdicts is not None
    assert verdicts.runs == {"ours": "clean", "ours-live": "unknown: no lines"}
    assert verdicts.lines == 10


def test_what_was_judged_is_judged_again_only_where_a_run_is_another(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = done(tiny_plan(out)[:2])
    pipeline = Pipeline(monkeypatch, report(ours=({}, {})))
    first = judged(out, plan)
    assert judged(out, plan) == first
    assert len(pipeline.calls) == 3
    (plan[0].folder / "summary.json").write_text(make_summary(wall_s=1.0).to_json())
    judged(out, plan)
    assert len(pipeline.calls) == 6


def test_another_table_is_drawn_and_nothing_judged_again(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = done(tiny_plan(out)[:1])
    pipeline = Pipeline(monkeypatch, report(ours=({}, {})))
    judged(out, plan)
    judge(out, plan, lambda line: None, 0, lambda verdicts: Beside(tables=[]))
    assert [name for name, *_ in pipeline.calls] == ["ingest", "check", "report", "report"]
    assert read_beside(out / "beside.json") == Beside(tables=[])


def test_a_report_that_failed_is_drawn_the_next_time(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = done(tiny_plan(out)[:1])
    Pipeline(monkeypatch, report(ours=({}, {})) | {"falls": True})
    with pytest.raises(LocalError, match="report ended with 1"):
        judged(out, plan)
    assert not (out / "beside.json").exists()
    pipeline = Pipeline(monkeypatch, report(ours=({}, {})))
    judged(out, plan)
    assert [name for name, *_ in pipeline.calls] == ["report"]


def test_baselines_alone_are_not_judged(out: Path) -> None:
    assert judged(out, tiny_plan(out)[2:4]) is None


@pytest.mark.parametrize(
    ("fails", "code", "why"),
    [
        (("simulate", "nothing"), 1, "no scenario 'nothing'"),
        (("status", "--url", "http://127.0.0.1:9"), 3, "no daemon answers"),
    ],
    ids=["it raises", "it exits, and prints nothing"],
)
def test_commands_are_called_in_one_process_until_one_fails(
    out: Path, monkeypatch: pytest.MonkeyPatch, fails: tuple[str, ...], code: int, why: str
) -> None:
    """With other commands in their place: those below need no Spark."""
    script = thesis_judge.COMMANDS.replace('"pipeline", ', "")
    monkeypatch.setattr(thesis_judge, "COMMANDS", script)
    told: list[str] = []
    with (
        (out / "lock").open("w") as lock,
        Commands(out, told.append, lock.fileno()) as commands,
    ):
        assert commands.call("version").strip() == __version__
        assert json.loads(commands.call("version", "--json")) == {"version": __version__}
        with pytest.raises(LocalError, match=f"pipeline {fails[0]} ended with {code}: see"):
            commands.call(*fails)
    assert told == ["pipeline version", "pipeline version", f"pipeline {fails[0]}"]
    assert why in (out / "pipeline.log").read_text()
