"""What happened in a run, told from its traces: topics, lives, subscriptions, events, deliveries.

These are the words in which quality, checks and reports speak, so each has one meaning here, the
same as the simulator's own checkers give it (docs/glossary.md). Nothing here asks a clock: order on
one node is incarnation and seq, between nodes only numbers, parents and frontiers tell.

Every function takes the table `lines` (`schema.LINES`), of one run or of many.
"""

from pulsarcast.pipeline.history.deliveries import deliveries
from pulsarcast.pipeline.history.lives import DRIVER, lives
from pulsarcast.pipeline.history.places import (
    END_OF_LIFE,
    LEVELS,
    in_own_name,
    is_shared,
    is_within,
    place,
)
from pulsarcast.pipeline.history.publications import publications, standing
from pulsarcast.pipeline.history.subscriptions import periods, starts
from pulsarcast.pipeline.history.topics import flushes, topics, versions

__all__ = [
    "DRIVER",
    "END_OF_LIFE",
    "LEVELS",
    "deliveries",
    "flushes",
    "in_own_name",
    "is_shared",
    "is_within",
    "lives",
    "periods",
    "place",
    "publications",
    "standing",
    "starts",
    "topics",
    "versions",
]
