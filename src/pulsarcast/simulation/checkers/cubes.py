"""Cubes: every publisher reaches every member, each once (docs/spec/cube.md).

Checked once the network has settled, on what each member knows: for every publisher its tree is
walked as an event would.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from pulsarcast.model.ids import Cid, PeerId, peer_key
from pulsarcast.model.keys import KEY_BITS, bucket_of
from pulsarcast.simulation.findings import Findings

ROOTS_MAX = 64
"""Publishers whose trees are walked; of more members, some."""


class View(Protocol):
    """What one node knows of one cube: `protocol`'s CubeView."""

    @property
    def members(self) -> Sequence[PeerId]:
        """Whom it knows."""


class Shape(NamedTuple):
    """What the trees over one cube look like."""

    members: int = 0
    depth_max: int = 0
    depth_mean: float = 0.0
    fanout_max: int = 0


def check_cubes(
    cubes: Mapping[PeerId, Mapping[Cid, View]],
    findings: Findings,
    *,
    names: Mapping[Cid, str] | None = None,
) -> list[Shape]:
    """Walk the publishers' trees of every topic over all live nodes; returns their shapes."""
    topics: dict[Cid, dict[PeerId, View]] = {}
    for peer, views in cubes.items():
        for topic, view in views.items():
            topics.setdefault(topic, {})[peer] = view
    return [
        _walk(
            {peer: _children(peer, view) for peer, view in cube.items()},
            findings,
            (names or {}).get(topic) or topic.hex()[8:20],
        )
        for topic, cube in topics.items()
    ]


def _children(peer: PeerId, view: View) -> dict[int, PeerId]:
    """The first of each bucket, in the order of VCube-PS: by distance from i xor 2^(s-1)."""
    key = peer_key(peer)
    first: dict[int, PeerId] = {}
    for member in view.members:
        bucket = bucket_of(key, peer_key(member))
        target = key ^ (1 << bucket)
        best = first.get(bucket)
        if best is None or peer_key(member) ^ target < peer_key(best) ^ target:
            first[bucket] = member
    return first


def _walk(cube: Mapping[PeerId, Mapping[int, PeerId]], findings: Findings, name: str) -> Shape:
    roots = list(cube)[:: max(1, len(cube) // ROOTS_MAX)]
    depths: list[int] = []
    for root in roots:
        depth = {root: 0}
        todo = [(root, KEY_BITS)]
        while todo:
            peer, level = todo.pop()
            for bucket, child in cube[peer].items():
                if bucket >= level:
                    continue
                if child not in cube:
                    findings.add(
                        "cube_dead_child",
                        f"topic {name}: {_short(peer)} counts on {_short(child)} in vain",
                    )
                elif child in depth:
                    findings.add("cube_twice", f"topic {name}: {_short(child)}")
                else:
                    depth[child] = depth[peer] + 1
                    todo.append((child, bucket))
        missed = [peer for peer in cube if peer not in depth]
        if missed:
            findings.add(
                "cube_unreached",
                f"topic {name}: {_short(root)} does not reach {len(missed)} of {len(cube)}, "
                f"{_short(missed[0])} among them",
            )
        depths += [each for each in depth.values() if each]
    return Shape(
        len(cube),
        max(depths, default=0),
        sum(depths) / max(1, len(depths)),
        max((len(children) for children in cube.values()), default=0),
    )


def _short(peer: PeerId) -> str:
    return peer.hex()[12:20]
