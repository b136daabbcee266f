"""The garbage collector of a process that is a node and little else."""

from __future__ import annotations

import gc
from typing import Final

YOUNG_MAX: Final = 20_000
"""Objects before the collector looks for cycles. Nearly all objects of a node die without its help,
and Python's default of 700 takes 7 % of a busy node's time. As many objects are about 4 MB."""


def collect_seldom() -> None:
    """Look for cycles seldom, and never among the modules that the process has imported."""
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])
