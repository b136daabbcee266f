"""Churn: sessions whose lengths follow measured systems, scaled in time (session-fits.json)."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import NamedTuple

from pulsarcast.model.errors import LocalError


class Sessions(NamedTuple):
    """How long nodes are up and down: Weibull, (shape, scale in seconds) each."""

    up: tuple[float, float]
    down: tuple[float, float]

    def up_s(self, rng: Random) -> float:
        """How long a node stays."""
        shape, scale = self.up
        return rng.weibullvariate(scale, shape)

    def down_s(self, rng: Random) -> float:
        """How long it is away."""
        shape, scale = self.down
        return rng.weibullvariate(scale, shape)


def read_sessions(given: str, *, hour_s: float) -> Sessions:
    """The fit that FILE:NAME names, with an hour of it taking `hour_s`."""
    path, _, name = given.rpartition(":")
    if not Path(path).is_file():
        raise LocalError(f"no such file of sessions: {path!r} (give FILE:NAME)")
    try:
        fits = json.loads(Path(path).read_text(encoding="utf-8"))
        (up_shape, up_h), (down_shape, down_h) = fits[name]["weibull_shape_scale"]
    except (ValueError, KeyError, TypeError):
        raise LocalError(f"no Weibull fit {name!r} in {path}") from None
    return Sessions((up_shape, up_h * hour_s), (down_shape, down_h * hour_s))
