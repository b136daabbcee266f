"""Listed topics on the command line: options, and texts of strangers on a terminal."""

from typing import Any

import click
import pytest

from pulsarcast.cli.output import plain
from pulsarcast.cli.topics import _changed, _show_listings
from pulsarcast.model import api

BASE = api.SettingsView(description="old", tags=["old"])


def changed(**options: Any) -> api.SettingsView:
    left_out = dict.fromkeys(
        ("retention_days", "retention_count", "retention_bytes", "description")
    )
    repeated: dict[str, Any] = dict.fromkeys(("sequencer", "publisher", "attribute", "tag"), ())
    return _changed(BASE, **{**left_out, **repeated, "is_open": False, "unlist": False, **options})


def test_description_and_tags_stay_unless_others_are_given() -> None:
    assert changed().tags == ["old"]
    assert (changed(description="new").description, changed(description="new").tags) == (
        "new",
        ["old"],
    )
    assert changed(tag=("a", "b")).tags == ["a", "b"]


def test_unlisting_takes_both_away() -> None:
    ended = changed(unlist=True)
    assert (ended.description, ended.tags) == ("", [])
    with pytest.raises(click.UsageError):
        changed(unlist=True, tag=("a",))


def test_a_terminal_obeys_no_strangers_text(capsys: pytest.CaptureFixture[str]) -> None:
    """A daemon lets no such listing through; a terminal is not left to that."""
    assert plain("\x1b[2Jgood\u202e é 漢") == "\ufffd[2Jgood\ufffd é 漢"
    hostile = api.ListingView(
        id="bafy", name="\x1b]0;x\x07", author="12D3KooWabcdefgh", version=0, description="a\nb"
    )
    _show_listings(api.Listings([hostile], cut=True), as_json=False)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 3
    assert "there may be more" in shown
    _show_listings(api.Listings([], cut=False), as_json=False)
    assert capsys.readouterr().out == "no listed topic found\n"
