"""The logical spaces of a topic: the domain of each attribute, and where filters and events lie.

docs/spec/content.md, The logical space.

Points must not move when a schema grows. So an attribute keeps the domain of the oldest version
that has it, and values that a later version allows beyond it count as its ends (2d-tree thesis,
3.3.1: a new attribute does not affect what is installed).
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import NamedTuple, TypeGuard, cast

from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.model.events import Attribute
from pulsarcast.model.filters import Filter, parse, parse_received
from pulsarcast.model.filters.domains import Domain, domain_of
from pulsarcast.model.ids import Cid
from pulsarcast.model.topic_types import TopicDescriptor
from pulsarcast.protocol.content.space import unit
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.topic.versions import Versions

KNOWN_CHARS_MAX = 256
"""Bounds the length of filters whose parsed form is cached: strangers could fill the memory."""
WAITING_MAX = 256
"""Bounds the messages that wait for the version that they name: strangers can make versions up."""
TEXT_WIDTH_MIN = 1 / 64
"""Least width that a range of texts counts for: many events may share a text, however long it is.
So a narrower range of numbers is routed by instead."""
SCHEMAS_MAX = 8
"""Bounds the schemas of a topic by which a filter is tried, the newest first."""


def is_routed(topic: TopicDescriptor) -> bool:
    """Whether a topic's author wants its events routed by content."""
    return topic.content_routing and any(domain_of(rule).is_ordered for rule in topic.attributes)


class Spaces:
    """The logical spaces of topics, found by their descriptors."""

    def __init__(self, descriptors: Descriptors, following: Following) -> None:
        self._descriptors = descriptors
        self._following = following
        self._domains: dict[Cid, tuple[int, dict[str, Domain]]] = {}
        self._finding: dict[tuple[Cid, Cid], list[Callable[[Versions | None], None]]] = {}
        """By topic and version: callers that wait for the version."""
        self._waiting = 0

    def find(
        self,
        topic: Cid,
        version: Cid,
        then: Callable[[Versions | None], None],
        *,
        always: bool = False,
    ) -> None:
        """Find a topic's versions, this one among them; `then` gets None if it cannot be found.

        Also if `WAITING_MAX` callers wait already, unless this one is to wait `always`.
        """
        known = self._descriptors.get(topic)
        if known is not None and version in known.by_cid:
            then(known)
            return
        if self._waiting >= WAITING_MAX and not always:
            then(None)
            return
        waiting = self._finding.setdefault((topic, version), [])
        waiting.append(then)
        self._waiting += 1
        if len(waiting) == 1:
            self._descriptors.find(topic, partial(self._found, topic, version))

    def _found(self, topic: Cid, version: Cid, versions: Versions | None) -> None:
        def extended(newer: list[TopicDescriptor]) -> None:
            assert versions is not None
            try:
                for each in newer:
                    self._following.add_version(versions, each)
            except RemoteError:
                pass
            self._end(topic, version, versions if version in versions.by_cid else None)

        if versions is None or version in versions.by_cid:
            self._end(topic, version, versions)
        else:
            self._descriptors.find_version(topic, version, extended)

    def _end(self, topic: Cid, version: Cid, versions: Versions | None) -> None:
        waiting = self._finding.pop((topic, version))
        self._waiting -= len(waiting)
        for then in waiting:
            then(versions)

    def domains(self, versions: Versions) -> dict[str, Domain]:
        """The attributes of a topic that have an order, each with its first domain."""
        topic, known = versions.first.cid, len(versions.by_cid)
        cached = self._domains.get(topic)
        if cached is not None and cached[0] == known:
            return cached[1]
        domains: dict[str, Domain] = {}
        for version in versions.all():
            for rule in version.attributes:
                domain = domain_of(rule)
                if domain.is_ordered:
                    domains.setdefault(rule.name, domain)
        self._domains[topic] = (known, domains)
        if len(self._domains) > 1024:
            del self._domains[next(iter(self._domains))]
        return domains

    def places(self, versions: Versions, attributes: Mapping[str, Attribute]) -> dict[str, float]:
        """The place of an event in the space of each attribute that it has."""
        places: dict[str, float] = {}
        for name, domain in self.domains(versions).items():
            value = attributes.get(name)
            if isinstance(value, str) if domain.kind == "str" else is_number(value):
                places[name] = unit(domain, cast("float | str", value))
        return places


def filter_of(version: TopicDescriptor, where: str) -> Filter:
    """A filter that another peer sent, read by the schema that it was written for."""
    if len(where) > KNOWN_CHARS_MAX:
        return parse_received(where, version.attributes)
    return known_filter(version, where)


@lru_cache(maxsize=1 << 13)
def known_filter(version: TopicDescriptor, where: str) -> Filter:
    """The same for a short filter. Long ones are not cached: strangers could fill the memory."""
    return parse_received(where, version.attributes)


def read_filter(versions: Versions, where: str) -> tuple[TopicDescriptor, Filter]:
    """A filter by the newest version that can read it: a later one may have dropped attributes.

    Raises RemoteError if none can.
    """
    try:
        return versions.current, filter_of(versions.current, where)
    except RemoteError as error:
        refused = error
    schemas = {version.attributes: version for version in versions.all()}
    for version in sorted(schemas.values(), key=lambda each: -each.number)[:SCHEMAS_MAX]:
        try:
            return version, filter_of(version, where)
        except RemoteError:
            continue
    raise refused


def own_filter(version: TopicDescriptor, where: str) -> Filter:
    """A filter of an application of this node."""
    return parse(where, version.attributes)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether an event's attribute is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Routed(NamedTuple):
    """How one alternative of a filter is routed: by which attribute, and its range."""

    attribute: str
    low: float
    high: float


def routes_of(wanted: Filter, domains: Mapping[str, Domain]) -> list[Routed]:
    """The attribute by which each box of a filter's cover is routed: the most selective one.

    Raises LocalError if a box has no range: such a filter cannot be routed.
    """
    routes: dict[Routed, None] = {}
    for box in wanted.cover():
        found: Routed | None = None
        narrowest = 2.0
        for name, each in box.ranges:
            domain = domains.get(name)
            if domain is None or (domain.kind == "str") is not isinstance(each.low, str):
                continue
            low, high = unit(domain, each.low), unit(domain, each.high)
            width = max(high - low, TEXT_WIDTH_MIN) if domain.kind == "str" else high - low
            if width < narrowest:
                found, narrowest = Routed(name, low, high), width
        if found is None:
            raise LocalError(
                "a filter that asks about no number and no text cannot be routed by content"
            )
        routes[found] = None
    return list(routes)
