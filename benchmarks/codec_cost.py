"""What it costs to write and to read a message of each kind, in µs of CPU time.

    python benchmarks/codec_cost.py
    python benchmarks/codec_cost.py --base ../other/src --turns 8

With `--base`, the folder `src` of another commit is measured in turns with this one, each turn in a
process of its own, and the table gives both and their ratio. Each figure is the best of all turns:
what else the machine does can only add to it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from pulsarcast.model import cbor
from pulsarcast.model.ids import cid_of, peer_id_of
from pulsarcast.protocol import messages as m
from pulsarcast.protocol.content import messages as c
from pulsarcast.protocol.sequencing import messages as s
from pulsarcast.protocol.sequencing.configs import Config, Member
from pulsarcast.protocol.sequencing.log import Entry, EntryKind, Snapshot
from pulsarcast.protocol.store import MarkState
from pulsarcast.wire.codec import decode, encode

HEAD: Final = Path(__file__).parent.parent / "src"
ROUNDS: Final = 5
ROUND_S: Final = 0.01


def main() -> None:
    """Print a row for each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, help="`src` of a commit to compare with")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure()))
        return
    trees = [HEAD] if given.base is None else [given.base, HEAD]
    best: list[dict[str, list[float]]] = [{} for _ in trees]
    for _ in range(given.turns):
        for tree, known in zip(trees, best, strict=True):
            for name, costs in measured_in(tree).items():
                known[name] = list(map(min, costs, known.get(name, costs)))
    print("message", *(["write", "read"] if given.base is None else HEADINGS), sep="\t")
    for name, costs in best[0].items():
        columns = list(costs)
        if given.base is not None:
            columns = [
                figure
                for old, new in zip(costs, best[1][name], strict=True)
                for figure in (old, new, new / old)
            ]
        print(name, *(f"{figure:.2f}" for figure in columns), sep="\t")


HEADINGS: Final = ["write: base", "head", "ratio", "read: base", "head", "ratio"]


def measured_in(tree: Path) -> dict[str, list[float]]:
    """What the kinds cost with the code of one commit."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    command = [sys.executable, __file__, "--one"]
    done = subprocess.run(command, env=environment, check=True, capture_output=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def measure() -> dict[str, list[float]]:
    """µs to write and to read one message of each kind."""
    found: dict[str, list[float]] = {}
    for name, message in samples().items():
        data = encode(message)
        assert decode(data) == message
        found[name] = [cost_us(encode, message), cost_us(decode, data)]
    return found


def cost_us(act: Callable[[Any], object], given: Any) -> float:
    """The best of some rounds, each of a hundredth of a second."""
    count, best_s = 100, float("inf")
    for _ in range(ROUNDS):
        begun_s = time.process_time()
        for _ in range(count):
            act(given)
        took_s = time.process_time() - begun_s
        best_s = min(best_s, took_s / count)
        count = max(100, int(ROUND_S / best_s))
    return best_s * 1e6


def samples() -> dict[str, m.Message]:
    """A usual message of each kind, and some that carry much."""
    rng = Random(1)
    topic, cid = cid_of(b"topic"), cid_of(b"event")
    peers = [peer_id_of(rng.randbytes(32)) for _ in range(20)]
    peer = peers[0]
    bare = tuple(m.Contact(each) for each in peers)
    known = tuple(m.Contact(each, ("/ip4/10.0.0.1/tcp/4001",)) for each in peers)
    block = rng.randbytes(400)
    probe = cbor.encode({"r": {"t": topic}, "p": rng.randbytes(300)})
    marks = tuple(MarkState(each, 2**60 + 7, 1, 5_000, cid) for each in peers)
    gaps = tuple(mark._replace(beyond=tuple(range(5_002, 5_034))) for mark in marks)
    held = c.Held(rng.randbytes(200), 3, 0.25, 0.5, True, 3_600)
    key, store = 2**255 + 5, bytes(8)
    config = Config(tuple(Member(each, store) for each in peers[:5]))
    entry = Entry(3, 1_000, EntryKind.EVENT, block)
    few = m.Status(topic, bytes(16), tuple(peers[:4]), bare[:2], True)
    targets = tuple(c.Target(("price", "size")[at % 2], 9 + at, 9 + at) for at in range(16))
    return {
        "EventMessage": m.EventMessage(block, 3),
        "EventMessage, certified": m.EventMessage(block, 3, bytes(196)),
        "Credit": m.Credit(topic, 64),
        "RequestToPublish": m.RequestToPublish(block, True, 40),
        "RequestAnswered": m.RequestAnswered(topic, bytes(32), cid, 3),
        "RequestReferred": m.RequestReferred(topic, bytes(32), peer),
        "Join": m.Join(topic, 5, m.Role.MEMBER, peer, False, True),
        "JoinAccepted": m.JoinAccepted(topic, 5, tuple(peers[:4]), bare[:8], bytes(16)),
        "JoinReferred": m.JoinReferred(topic, 5, known[0], True),
        "JoinRefused": m.JoinRefused(topic, 5, "busy"),
        "Leave": m.Leave(topic),
        "HandOver": m.HandOver(topic, bare[0]),
        "Meet": m.Meet(topic, key, 20),
        "Members": m.Members(topic, bare),
        "Status": few,
        "Status, with addresses": m.Status(topic, bytes(16), tuple(peers[:4]), known[:2], False),
        "FrontierPage of 8": m.FrontierPage(topic, marks[:8], True),
        "FrontierPage of 8, gaps": m.FrontierPage(topic, gaps[:8], True),
        "FetchRange": m.FetchRange(9, topic, peer, 2**60 + 7, 100, 163),
        "Range of 1": m.Range(9, topic, (block,), False),
        "Range of 32": m.Range(9, topic, (block,) * 32, True),
        "Range of 32, certified": m.Range(9, topic, (block,) * 32, True, (bytes(196),) * 32),
        "FindPeers": m.FindPeers(9, key, 20),
        "Peers": m.Peers(9, bare),
        "Peers, with addresses": m.Peers(9, known),
        "FindBlock": m.FindBlock(9, cid),
        "BlockFound": m.BlockFound(9, block, ()),
        "BlockFound, peers": m.BlockFound(9, None, bare),
        "StoreBlocks": m.StoreBlocks(9, (block,)),
        "Stored": m.Stored(9, (cid,)),
        "FindPointer": m.FindPointer(9, key),
        "PointerFound": m.PointerFound(9, block, bare),
        "StorePointer": m.StorePointer(9, block),
        "CompareKeys": m.CompareKeys(9, 5, key, 1_000, key),
        "KeysDiffer": m.KeysDiffer(9, 5, key, (cid,) * 16, ((5, key, 1_000, key),) * 16),
        "WantBlocks": m.WantBlocks(9, (cid,) * 16),
        "RequestVote": s.RequestVote(topic, 3, store, 1_000, 2, False),
        "Vote": s.Vote(topic, 3, store, True, False),
        "Append, empty": s.Append(topic, 3, store, 1_000, 3, (), 990, 991, 980),
        "Append of 16": s.Append(topic, 3, store, 1_000, 3, (entry,) * 16, 990, 991, 980),
        "Append, snapshot": s.Append(
            topic, 3, store, 1_000, 3, (), 990, 991, 980, Snapshot(7, 3, 5, cid, config)
        ),
        "Appended": s.Appended(topic, 3, store, True, 1_000, 990),
        "Appended, signed": s.Appended(
            topic, 3, store, True, 1_000, 990, ((1_000, bytes(64)),) * 16
        ),
        "Summon": s.Summon(topic, cid),
        "ProbeEvent of 1": c.ProbeEvent(topic, probe, targets[:1], 2),
        "ProbeEvent of 16": c.ProbeEvent(topic, probe, targets, 2),
        "MatchedEvent": c.MatchedEvent(block, 3),
        "PlaceSubscription": c.PlaceSubscription(
            topic, "price", 9, c.Stage.ASSURED, held, 2**60, 2
        ),
        "Installed": c.Installed(topic, 2**60, 4, 1, "price", 9, 2**60, 2),
        "PlaceState of 8": c.PlaceState(
            topic, "price", 9, c.Purpose.HAND_OVER, True, (held,) * 8, bytes(64), 7, peer, 2
        ),
        "PlaceTaken": c.PlaceTaken(topic, "price", 9, 2**60),
        "TreeHint": c.TreeHint(topic, "price", 9, 4, 1),
        "AskShape": c.AskShape(topic, "price", 9, 2**60, peer, 1),
        "TreeShape": c.TreeShape(topic, "price", 9, bytes(64), 2**60),
        "CompareContent": c.CompareContent(9, topic, ("price < 5",), 7, 100, 90, bytes(64)),
        "CompareContent, marks": c.CompareContent(
            9, topic, ("price < 5",), 0, 0, 0, bytes(64), marks, True
        ),
        "ContentCompared": c.ContentCompared(
            9, topic, 7, 100, 120, bytes(64), (block,) * 8, marks[:8], False
        ),
    }


if __name__ == "__main__":
    main()
