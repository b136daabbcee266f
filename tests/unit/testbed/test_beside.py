from pathlib import Path

import pytest

from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.beside import beside


def test_runs_stand_beside_each_other(tmp_path: Path) -> None:
    for name, text in (
        ("tree", '{"due":12345,"deliveries_per_s":58.4,"died":[],"refused":{}}'),
        ("cube", '{"due":12345,"deliveries_per_s":61.0,"died":["node 1"],"more":true}'),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(text)
    assert beside([tmp_path / "tree", tmp_path / "cube"]) == (
        "|  | tree | cube |\n"
        "| --- | --- | --- |\n"
        "| due | 12,345 | 12,345 |\n"
        "| deliveries_per_s | 58.4 | 61.0 |\n"
        "| refused | none |  |\n"
        "| more |  | True |\n"
    )


def test_a_run_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no finished run"):
        beside([tmp_path])
