"""`pulsarcast pipeline metrics`, for people: what a run has no lines for is nothing."""

from collections import defaultdict
from typing import Any

from pulsarcast.cli.pipeline.metrics import to_text


def test_a_run_without_topics_is_shown() -> None:
    """Its messages belong to no topic, so that all its counts are null."""
    nothing: defaultdict[str, Any] = defaultdict(lambda: None)
    text = to_text({"run_id": "idle", "all": nothing, "distributions": {}})
    first, *rest = text.splitlines()
    assert first == "idle"
    assert rest
    assert all(line.endswith(" 0 of 0") for line in rest)
