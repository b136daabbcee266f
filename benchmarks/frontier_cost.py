"""What a frontier costs, by number of publishers: two members that compare, and a newcomer.

    python -m benchmarks.frontier_cost [--publishers 10 1000 100000 1000000]

Two members hold the same but for the last events of one publisher, and compare. Prints, for each
number of publishers, the microseconds of the hash after one more event, the messages, bytes (as
frames) and trips until both hold the same, and what showing both frontiers whole would take. Then a
newcomer starts at one of them: the bytes and CPU milliseconds until it has begun, those until it
has loaded all, and the bytes of memory that each numbering takes. One line of JSON each.
"""

from __future__ import annotations

import argparse
import json
import tracemalloc
from time import process_time

from pulsarcast.model.ids import CID_PREFIX, PEER_ID_PREFIX, Cid, PeerId
from pulsarcast.protocol.messages import (
    CompareFrontiers,
    FetchStart,
    FrontierPage,
    Message,
    StartParts,
)
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.sharing import Sharing
from pulsarcast.protocol.topic.starting import StartGiver, StartLoader
from pulsarcast.wire import codec
from tests.support.people import ALICE, BOB, topic_of
from tests.unit.protocol.topic.bench import Bench

TOPIC = topic_of(ALICE)
EVENTS = 200
EPOCH = 1 << 62


def main() -> None:
    """Measure each number of publishers."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--publishers", type=int, nargs="+", default=[10, 1_000, 100_000, 1_000_000]
    )
    for count in parser.parse_args().publishers:
        print(json.dumps(measure(count)), flush=True)


def measure(count: int) -> dict[str, float]:
    """Let two members hold this many numberings, and one of them one event more."""
    sides = [Bench(TOPIC), Bench(TOPIC)]
    for side in sides:
        for number in range(count):
            side.frontier.adopt(_mark(number, 3))
    ours, theirs = (side.frontier for side in sides)
    assert ours.digest() == theirs.digest()
    number, began_s = 7 % count, process_time()
    for event in range(4, 4 + EVENTS):
        ours.add(_publisher(number), 1, event, None)
        ours.digest()
    spent_s = process_time() - began_s
    said, trips = _compare(sides)
    assert ours.digest() == theirs.digest()
    return {
        "publishers": count,
        "hash_us": round(1e6 * spent_s / EVENTS, 1),
        "messages": len(said),
        "bytes": sum(len(codec.encode(message)) for message in said),
        "trips": trips,
        "whole_bytes": 2 * count * len(codec.encode(_page_of_one())),
        **_start(sides[0]),
        "memory_bytes": _memory(count),
    }


def _start(giver: Bench) -> dict[str, float]:
    """Let a newcomer start at a member's frontier, and load all of it."""
    newcomer = Bench(TOPIC)
    newcomer.members.add_neighbour(ALICE.peer_id)
    gives = StartGiver(giver.state)
    loads = StartLoader(newcomer.state, newcomer.members.overlay, Alone(), {})
    loads.expect(ALICE.peer_id)
    began_s = process_time()
    gives.give(BOB.peer_id)
    sizes: list[int] = []
    begun_s = 0.0
    while messages := [message for _, message in giver.sent()]:
        for message in messages:
            assert isinstance(message, StartParts)
            sizes.append(len(codec.encode(message)))
            loads.take(message)
            loads.moved()
        begun_s = begun_s or process_time() - began_s
        for _, asked in newcomer.sent():
            assert isinstance(asked, FetchStart)
            gives.serve(BOB.peer_id, asked, known=True)
    loaded_s = process_time() - began_s
    return {
        "begin_bytes": sizes[0],
        "begin_ms": round(1e3 * begun_s, 1),
        "load_bytes": sum(sizes),
        "load_messages": len(sizes),
        "load_s": round(loaded_s, 2),
        "loaded": len(newcomer.frontier),
    }


class Alone:
    """Nobody waits for the newcomer."""

    def start_alone(self) -> None:
        """It never is."""


def _memory(count: int) -> float:
    """What each numbering takes in memory, its hash included."""
    tracemalloc.start()
    # An epoch is a random number, which takes eight bytes.
    frontier = Frontier(_mark(number, 3)._replace(epoch=EPOCH + number) for number in range(count))
    frontier.digest()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round(taken / len(frontier))


def _page_of_one() -> FrontierPage:
    return FrontierPage(TOPIC.cid, (_mark(1, 3),), answer=False)


def _publisher(number: int) -> PeerId:
    return PeerId(PEER_ID_PREFIX + number.to_bytes(32, "big"))


def _mark(number: int, high: int) -> MarkState:
    cid = Cid(CID_PREFIX + number.to_bytes(32, "big"))
    return MarkState(_publisher(number), 1, 0, high, cid)


def _compare(sides: list[Bench]) -> tuple[list[Message], int]:
    """What the two say, and how many times one of them spoke."""
    sharings = [Sharing(side.state) for side in sides]
    sharings[0].compare(BOB.peer_id)
    said: list[Message] = []
    speaker = trips = 0
    while messages := [message for _, message in sides[speaker].sent()]:
        said += messages
        trips += 1
        other = 1 - speaker
        for message in messages:
            match message:
                case CompareFrontiers(_, parts):
                    sharings[other].compare_parts(BOB.peer_id, parts)
                case FrontierPage(_, marks, answer):
                    if answer:
                        sharings[other].answer(BOB.peer_id, message, known=True)
                    for mark in marks:
                        if sides[other].frontier.missing_from(mark) is not None:
                            sides[other].frontier.adopt(mark)
        speaker = other
    return said, trips


if __name__ == "__main__":
    main()
