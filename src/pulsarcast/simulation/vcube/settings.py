"""What one experiment is: everything that a replicate depends on, but for its seed."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from pulsarcast.simulation.vcube.delays import Delays

MODEL: Final = 1
"""Raised when the model gives other figures for the same settings: old rows do not count then."""

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
_Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]

Experiment: TypeAlias = Literal["publish", "order", "topics", "churn", "stream", "views"]
System: TypeAlias = Literal["vcube", "srpt", "brokers"]


class Setting(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One point of a figure. Times are units of time, or milliseconds, which is the same."""

    experiment: Experiment
    system: System = "vcube"
    nodes: Annotated[int, msgspec.Meta(ge=2)]

    # The delay model.
    processing: _Count = 1
    transmission: _Count = 1
    propagation: _Count = 100
    queues: Literal["node", "link"] = "node"
    """One send queue for a node, or one for each destination."""
    acks_queue: bool = False
    """Whether acknowledgements wait in the queue as other messages do."""
    serial: bool = False
    """Whether a node handles one message after another, t_pc each, instead of all as they come."""

    # What is published.
    subscribers: _Share = 1.0
    """Share of the nodes."""
    publishers: _Share | None = None
    """Share of the nodes, each of which publishes once within 1,000 u.t.; None: one node."""
    messages: _Count = 1
    """In all (topics, brokers, stream)."""
    interval: _Positive = 500.0
    """Between two messages of a node (topics), or of all of them (brokers, stream), on average."""
    brokers: _Count | None = None

    first_messages: _Count = 1
    """order: how many messages a node waits for before it publishes its own."""
    answer: Literal["exponential", "uniform"] = "exponential"
    answer_mean: _Positive = 150.0
    """order: t_w, how long a node then takes. The paper does not say."""

    topics: _Count = 128
    zipf: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """topics: the exponent; 0 is uniform."""

    # Members that come and go.
    members: _Count | None = None
    session_s: _Positive | None = None
    """t_med; None: nobody comes or goes."""
    churn_unit_s: _Positive = 1.0
    """members x ln 2 / t_med is a rate per so many seconds: 1 by its source, 60 by the text."""
    duration_s: _Positive = 20.0

    # Beyond the paper.
    waits: bool = True
    """Whether a publisher waits for all acknowledgements of its previous message."""
    combine_max: _Count = 1
    """How many messages to one destination may leave as one, while they wait in the queue."""
    bucket: _Count | None = None
    """views: how many members a node knows in each cluster at most; None: all of them."""
    missing: _Share = 0.0
    """views: share of the entries that it lacks."""
    repair: Literal["none", "nearest", "far"] = "none"
    """views: whom members compare with afterwards: their nearest ones, or also one far away."""
    dead: _Share = 0.0
    """views: share of the members that do not answer."""
    timeout: _Count = 300
    """views: after how long a child that does not answer is given up."""

    @property
    def delays(self) -> Delays:
        """Of one message."""
        return Delays(self.processing, self.transmission, self.propagation)
