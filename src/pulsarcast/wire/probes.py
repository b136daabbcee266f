"""The codec of ProbeEvent, the only one that is not wholly derived from its type.

It is the most frequent message about content, with many targets of few attributes. So it names
each attribute once, leaves out `wanted` if that is `at`, and takes the topic from the event.
"""

from typing import Annotated, NamedTuple

from msgspec import Struct

from pulsarcast.model.events import topic_named_in
from pulsarcast.protocol.content.messages import (
    TREE_NODE_MAX,
    Attribute,
    ProbeEvent,
    Stage,
    Target,
    TreeNode,
)
from pulsarcast.protocol.fields import Block, Bound, Hops, Many
from pulsarcast.protocol.limits import TARGET_ATTRIBUTES_MAX, TARGETS_MAX
from pulsarcast.wire import pulsarcast_pb2 as pb
from pulsarcast.wire.derive import Codec, derive
from pulsarcast.wire.refusing import refusal


class _Target(NamedTuple):
    """A target, with the number of its attribute."""

    attribute: Annotated[int, Bound(0, TARGET_ATTRIBUTES_MAX)]
    at: TreeNode
    wanted: Annotated[int, Bound(0, TREE_NODE_MAX)] = 0
    """0: the same as `at`."""
    stage: Stage = Stage.GUESSED


class _Probe(Struct, frozen=True):
    """A ProbeEvent as it travels."""

    block: Block
    attributes: Annotated[tuple[Attribute, ...], Many(TARGET_ATTRIBUTES_MAX)]
    targets: Annotated[tuple[_Target, ...], Many(TARGETS_MAX)]
    hops: Hops


def _pack(message: ProbeEvent) -> pb.Frame:
    numbers: dict[str, int] = {}
    targets: list[dict[str, int]] = []
    for attribute, at, wanted, stage in message.targets:
        packed = {"attribute": numbers.setdefault(attribute, len(numbers)), "at": at}
        if wanted != at:
            packed["wanted"] = wanted
        if stage:
            packed["stage"] = stage
        targets.append(packed)
    attributes = list(numbers)
    return pb.Frame(
        probe_event={
            "block": message.block,
            "attributes": attributes,
            "targets": targets,
            "hops": message.hops,
        }
    )


def _read(given: pb.ProbeEvent) -> ProbeEvent:
    probe: _Probe = _derived.read(given)
    names = probe.attributes
    targets: list[Target] = []
    for attribute, at, wanted, stage in probe.targets:
        if attribute >= len(names):
            raise refusal("ProbeEvent.targets has one of no attribute")
        targets.append(Target(names[attribute], at, wanted or at, stage))
    return ProbeEvent(topic_named_in(probe.block), probe.block, tuple(targets), probe.hops)


def _size(message: ProbeEvent) -> int:
    numbers: dict[str, int] = {}
    targets = [
        (numbers.setdefault(attribute, len(numbers)), at, 0 if wanted == at else wanted, stage)
        for attribute, at, wanted, stage in message.targets
    ]
    probe = _Probe(message.block, tuple(numbers), targets, message.hops)  # type: ignore[arg-type]
    return _derived.size(probe)


_derived = derive(_Probe, "probe_event")
CODEC = Codec(_pack, _read, _size, _derived.bounds)
