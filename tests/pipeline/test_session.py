"""Sessions: settings that fit what is to be read."""

from pathlib import Path

from pulsarcast.pipeline import session as sessions


def test_little_is_what_is_known_and_small(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "segment").write_bytes(bytes(1_000))
    assert sessions.is_little([tmp_path])
    assert sessions.is_little([tmp_path / "deep" / "segment", tmp_path])
    assert not sessions.is_little([])
    assert not sessions.is_little(["hdfs://somewhere/traces"])
    assert not sessions.is_little([tmp_path, tmp_path / "missing"])


def test_much_is_not_little(tmp_path: Path) -> None:
    with (tmp_path / "segment").open("wb") as file:
        file.truncate(sessions.LITTLE_BYTES + 1)
    assert not sessions.is_little([tmp_path])
