"""Memory: nothing in a node grows with history, with a slow peer, or with dead peers.

A node counts what it holds (`Node.footprint`); each count has a bound made of the protocol's
parameters and of what the node has chosen to do itself: its topics and its neighbours.
"""

from collections.abc import Mapping

from pulsarcast.protocol.dissemination.candidates import CANDIDATES_MAX, LOST_MAX, TRIED_MAX
from pulsarcast.protocol.dissemination.cube import LINKS_MAX
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.sequencing.sequencer import PENDING_MAX
from pulsarcast.simulation.findings import Findings

COUNT_MAX = 20_000
"""For counts that no rule below names: far above any healthy node, far below any history."""


def bounds(parameters: Parameters, *, topics: int) -> dict[str, int]:
    """What a node in so many topics may hold of each thing at most."""
    each = max(1, topics)
    return {
        "topics": each,
        "held_back": each * parameters.held_back_max,
        # Parent, children, lazy neighbours, and those that are on their way in or out.
        "links": each * 4 * (parameters.fanout + parameters.lazy_neighbours + 2),
        "cube_members": each * (parameters.cube_view + 64 * parameters.cube_bucket),
        "cube_links": each * LINKS_MAX,
        "cube_candidates": each * (CANDIDATES_MAX + LOST_MAX + 4 * TRIED_MAX),
        "requests": each * parameters.requests_held_max,
        "sequencer_entries": each * 2 * (parameters.sequencer_log + PENDING_MAX),
        "outbox": parameters.outbox_max,
        "dht_contacts": 256 * parameters.bucket_size,
        "dht_spares": 256 * parameters.bucket_size,
    }


def check_memory(
    footprints: Mapping[int, Mapping[str, int]],
    findings: Findings,
    limits: Mapping[str, int],
) -> dict[str, int]:
    """Hold every node's counts against their limits; returns the highest of each."""
    highest: dict[str, int] = {}
    for node, footprint in footprints.items():
        for name, count in footprint.items():
            highest[name] = max(count, highest.get(name, 0))
            limit = limits.get(name, COUNT_MAX)
            if count > limit:
                findings.add("memory", f"node {node} holds {count} {name}, above {limit}")
    return {name: highest[name] for name in sorted(highest)}
