"""`pulsarcast pipeline query`, with everything of Spark's made up."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

from pulsarcast.cli import main


class Rows(list[dict[str, Any]]):
    def cache(self) -> "Rows":
        return self

    def count(self, *_: object) -> int:
        return len(self)

    def limit(self, count: int) -> "Rows":
        return Rows(self[:count])

    def collect(self) -> "Rows":
        return self


@contextmanager
def no_spark(*_: object, **__: object) -> Iterator[None]:
    yield None


def test_in_json_too_it_says_that_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"offset": 1, "event_id": "e", "name": "", "attributes": {}, "payload": b"x"}
    monkeypatch.setattr("pulsarcast.pipeline.session.session", no_spark)
    querying = "pulsarcast.pipeline.archive.querying"
    monkeypatch.setattr(f"{querying}.topic_in", lambda *_: "topic")
    monkeypatch.setattr(f"{querying}.schema_in", lambda *_: None)
    monkeypatch.setattr(f"{querying}.query", lambda *_: Rows([row] * 3))
    words = ["pipeline", "query", "topic", "n > 1", "--archive", str(tmp_path), "--json"]
    words += ["--attribute", "n=int"]
    ran = CliRunner().invoke(main, [*words, "--limit", "2"], catch_exceptions=False)
    assert (ran.exit_code, ran.stdout.count("\n")) == (0, 2)
    assert ran.stderr == "3 events match: --limit shows more than 2\n"
    assert not CliRunner().invoke(main, words, catch_exceptions=False).stderr
