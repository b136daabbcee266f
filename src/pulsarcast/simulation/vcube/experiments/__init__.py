"""What section 4 measures, and what it left open: a setting and a seed in, figures out."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from pulsarcast.simulation.vcube.experiments import (
    beyond,
    churn,
    order,
    publishing,
    streams,
    topics,
)
from pulsarcast.simulation.vcube.settings import Setting

_EXPERIMENTS: Final[Mapping[str, Callable[[Setting, random.Random], dict[str, float]]]] = {
    "publish": publishing.run,
    "order": order.run,
    "topics": topics.run,
    "churn": churn.run,
    "stream": streams.run,
    "views": beyond.run,
}


def run(setting: Setting, seed: int) -> dict[str, float]:
    """Play one experiment. The same setting and seed give the same figures, in any process."""
    # Millions of small values live until the end, and looking through them for cycles takes a
    # quarter of the time.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _EXPERIMENTS[setting.experiment](setting, random.Random(seed))
    finally:
        if collects:
            gc.enable()


def run_written(setting: str, seed: int) -> dict[str, float]:
    """The same, with the setting as JSON: what a worker elsewhere is given."""
    return run(msgspec.json.decode(setting, type=Setting), seed)
