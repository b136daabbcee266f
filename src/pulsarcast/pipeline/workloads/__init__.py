"""Workloads: raw comments, or chance, into who publishes what and subscribes where (thesis, 5.2).

`build` is the whole of it; `dumps` and `comments` read, `ordering` and `assign` decide, `tables`
and `listing` write, `synthetic` makes comments up and `measure` says what real ones are like.
"""

from pulsarcast.pipeline.workloads.build import make_from_dumps, make_synthetic
from pulsarcast.pipeline.workloads.synthetic import Size
from pulsarcast.pipeline.workloads.tables import Counts, Options, read, read_about

__all__ = [
    "Counts",
    "Options",
    "Size",
    "make_from_dumps",
    "make_synthetic",
    "read",
    "read_about",
]
