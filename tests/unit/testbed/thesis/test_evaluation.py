import fcntl
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from pulsarcast.cli.testbed import testbed as command
from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.scenarios.compare import Progress
from pulsarcast.testbed.thesis.evaluation import LOCK, Results, evaluate
from pulsarcast.testbed.thesis.play import INGESTED
from pulsarcast.testbed.thesis.runs import FULL, SMALL, Planned, choose, plan_runs
from tests.unit.testbed.small_workload import write_workload
from tests.unit.testbed.thesis.fakes import FakeJudge, FakePlayer, tiny_plan

ALL = [
    "ours", "ours-total", "floodsub", "gossipsub", "ours-latency", "ours-total-latency",
    "floodsub-latency", "gossipsub-latency", "ours-author", "ours-kills", "ours-partition",
    "ours-live",
]  # fmt: skip


def play(out: Path, player: FakePlayer, judge: FakeJudge | None = None) -> Results:
    return evaluate(tiny_plan(out), out, player=player, judging=judge or FakeJudge())


def test_the_plan_is_the_thesis_chapter_and_what_it_left_open(tmp_path: Path) -> None:
    runs = {run.name: run.options for run in plan_runs(tmp_path, FULL, tmp_path / "w.zst")}
    assert list(runs) == ALL
    assert {options.nodes for options in runs.values()} == {100}
    whole = [name for name, options in runs.items() if options.events_max is None]
    assert whole == ["ours", "ours-total"]
    assert {options.events_max for options in runs.values()} == {None, 2000}
    late = {name: str(options.delay) for name, options in runs.items() if options.delay}
    assert late == dict.fromkeys((name for name in ALL if "latency" in name), "500ms~300ms")
    assert {options.trace_level for options in runs.values()} == {"delivery"}
    assert [o.faults for o in runs.values() if o.faults] == [
        ("author",),
        ("kills",),
        ("partition",),
    ]


def test_small_runs_are_small_whatever_the_workload(tmp_path: Path) -> None:
    runs = {run.name: run.options for run in plan_runs(tmp_path, SMALL, None)}
    assert {options.nodes for options in runs.values()} == {10}
    assert {o.events_max for o in runs.values() if o.contestant == "ours"} == {500}
    assert {o.events_max for o in runs.values() if o.contestant != "ours"} == {100}


def test_a_limit_is_never_above_that_of_the_whole_workload(tmp_path: Path) -> None:
    runs = plan_runs(tmp_path, replace(SMALL, limit=2000), None)
    assert max(run.options.events_max or 0 for run in runs) == 500


def test_every_run_is_played_once_and_all_of_ours_are_judged(tmp_path: Path) -> None:
    player, judge = FakePlayer(), FakeJudge()
    results = play(tmp_path, player, judge)
    assert player.played == [run.name for run in results.runs] == ALL
    assert judge.judged == [name for name in ALL if name.startswith("ours")]
    assert results.ok
    assert (results.failed, results.not_played) == ({}, [])
    written = json.loads((tmp_path / "results.json").read_text())
    assert written == json.loads(results.to_json())
    assert [run["name"] for run in written["runs"]] == ALL
    assert written["conditions"]["trace_levels"] == ["delivery"]
    assert (tmp_path / "table.md").read_text() == results.to_text()


def test_what_was_played_is_not_played_again_unless_asked(tmp_path: Path) -> None:
    play(tmp_path, FakePlayer())
    second = FakePlayer()
    assert play(tmp_path, second).ok
    assert second.played == []
    plan, third = tiny_plan(tmp_path), FakePlayer()
    evaluate(
        plan, tmp_path, only=plan[:1], again=True, player=third, judging=FakeJudge()
    )  # fmt: skip
    assert third.played == ["ours"]


def test_a_call_goes_on_where_one_was_killed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, FakePlayer(floodsub=KeyboardInterrupt()))
    left = tmp_path / "runs" / "floodsub"
    assert left.is_dir()
    (left / "traces" / "half").touch()
    second = FakePlayer()
    assert play(tmp_path, second).ok
    assert second.played == ALL[2:]
    assert not (left / "traces" / "half").exists()


def test_a_summary_that_was_cut_off_is_none(tmp_path: Path) -> None:
    play(tmp_path, FakePlayer())
    summary = tmp_path / "runs" / "ours-total" / "summary.json"
    summary.write_text(summary.read_text()[:100])
    second = FakePlayer()
    play(tmp_path, second)
    assert second.played == ["ours-total"]


def test_a_live_run_counts_once_its_stream_has_ended(tmp_path: Path) -> None:
    play(tmp_path, FakePlayer())
    (tmp_path / "runs" / "ours-live" / INGESTED).unlink()
    second = FakePlayer()
    play(tmp_path, second)
    assert second.played == ["ours-live"]


def test_a_run_that_fails_keeps_no_other_from_being_played(tmp_path: Path) -> None:
    player = FakePlayer(ours_total=LocalError("node 3 fell"))
    results = play(tmp_path, player)
    assert player.played == ALL
    assert not results.ok
    assert results.failed == {"ours-total": "node 3 fell"}
    assert results.not_played == ["ours-total"]
    assert "- ours-total: node 3 fell" in results.to_text()
    second = FakePlayer()
    assert play(tmp_path, second).ok
    assert second.played == ["ours-total"]


def test_runs_may_be_played_beside_each_other(tmp_path: Path) -> None:
    """Each in a process of its own; whatever one of them does, the others are played."""
    player = FakePlayer(
        ours_total=LocalError("node 3 fell"),
        floodsub=ValueError("nobody thought of this"),
        gossipsub=KeyboardInterrupt(),
    )
    told: list[str] = []
    results = evaluate(
        tiny_plan(tmp_path), tmp_path, at_a_time=3, player=player, judging=FakeJudge(),
        tell=told.append,
    )  # fmt: skip
    assert (player.played, told) == ([], []), "not here"
    assert results.failed.keys() == {"ours-total", "floodsub", "gossipsub"}
    assert results.failed["ours-total"] == "node 3 fell"
    assert "ValueError: nobody thought of this" in results.failed["floodsub"]
    assert results.failed["gossipsub"] == "its process ended with 130"
    assert results.not_played == ["ours-total", "floodsub", "gossipsub"]
    assert play(tmp_path, FakePlayer()).ok


def test_no_more_are_played_at_a_time_than_was_said(tmp_path: Path) -> None:
    going = tmp_path / "going"
    going.mkdir()

    class Counting(FakePlayer):
        def __call__(self, run: Planned, progress: Progress, lock: int) -> None:
            (going / run.name).touch()
            time.sleep(0.1)
            (run.folder / "seen").write_text(str(len([*going.iterdir()])))
            (going / run.name).unlink()
            super().__call__(run, progress, lock)

    plan = tiny_plan(tmp_path / "out")
    assert evaluate(plan, tmp_path / "out", at_a_time=2, player=Counting(), judging=FakeJudge()).ok
    seen = {int((run.folder / "seen").read_text()) for run in plan}
    assert max(seen) == 2


def test_ours_must_not_lose_anything_and_a_baseline_may(tmp_path: Path) -> None:
    lossy = {"delivered": 39, "lost": 1, "ok": False}
    results = play(tmp_path, FakePlayer(ours_kills=lossy, floodsub=lossy))
    assert not results.ok
    assert list(results.failed) == ["ours-kills"]
    assert "1 of 40 are missing" in results.failed["ours-kills"]


@pytest.mark.parametrize("verdict", ["unknown: no_events 1", "findings: lost 3"])
def test_a_verdict_that_is_not_clean_is_a_failure(verdict: str, tmp_path: Path) -> None:
    results = play(tmp_path, FakePlayer(), FakeJudge(ours_latency=verdict))
    assert not results.ok
    assert list(results.failed) == ["ours-latency"]
    assert verdict in results.failed["ours-latency"]


def test_a_pipeline_that_fails_is_told_of_and_the_figures_are_there(tmp_path: Path) -> None:
    def judging(*_: object, **__: object) -> None:
        raise LocalError("pipeline check ended with 1")

    results = evaluate(tiny_plan(tmp_path), tmp_path, player=FakePlayer(), judging=judging)
    assert results.failed == {"pipeline": "pipeline check ended with 1"}
    assert len(results.runs) == len(ALL)


def test_a_folder_with_another_evaluation_is_refused(tmp_path: Path) -> None:
    play(tmp_path, FakePlayer())
    other = tiny_plan(tmp_path, limit=7)
    with pytest.raises(LocalError, match="floodsub was played with another events_max"):
        evaluate(other, tmp_path, player=FakePlayer(), judging=FakeJudge())


def test_another_workload_is_another_evaluation(tmp_path: Path) -> None:
    out, path = tmp_path / "out", write_workload(tmp_path)

    def plan_and_play() -> None:
        plan = plan_runs(out, SMALL, path)
        evaluate(plan, out, player=FakePlayer(), judging=FakeJudge())

    plan_and_play()
    assert str(tmp_path) not in (out / "results.json").read_text()
    path.write_text(path.read_text() + "\n")
    with pytest.raises(LocalError, match="another workload_sha256"):
        plan_and_play()


def test_a_folder_is_used_by_one_evaluation_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsarcast.testbed.thesis.evaluation.LOCK_S_MAX", 0.2)
    with (tmp_path / LOCK).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(LocalError, match="another evaluation is going on"):
            play(tmp_path, FakePlayer())


def test_only_some_runs_may_be_played_and_the_rest_later(tmp_path: Path) -> None:
    plan, player = tiny_plan(tmp_path), FakePlayer()
    only = choose(plan, ["gossipsub", "ours"])
    results = evaluate(plan, tmp_path, only=only, player=player, judging=FakeJudge())
    assert player.played == ["ours", "gossipsub"]
    assert results.ok
    assert results.not_played == [name for name in ALL if name not in player.played]
    with pytest.raises(LocalError, match="no run 'flood'; there are: ours, ours-total"):
        choose(plan, ["flood"])


def test_the_command_exits_with_1_where_something_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(player: FakePlayer, *more: str) -> tuple[int, str]:
        faked = partial(evaluate, player=player, judging=FakeJudge())
        monkeypatch.setattr("pulsarcast.testbed.thesis.evaluation.evaluate", faked)
        given = ["thesis", "--small", "--out", str(tmp_path), *more]
        outcome = CliRunner().invoke(command, given, catch_exceptions=False)
        return outcome.exit_code, outcome.stdout

    code, text = call(FakePlayer(floodsub=LocalError("it fell")))
    assert code == 1
    assert "- floodsub: it fell" in text
    code, text = call(FakePlayer(), "--json")
    assert code == 0
    assert json.loads(text)["failed"] == {}
    assert call(FakePlayer(), "--only", "flood")[0] == 1
