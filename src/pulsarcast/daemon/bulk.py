"""Operations for programs that read or write a lot: whole logs, and events by the thousand.

Both are cut into small steps, and everybody else has a turn between two of them.
"""

from __future__ import annotations

from typing import Final

import msgspec
import trio
from starlette.responses import Response

from pulsarcast.daemon.answers import (
    SAFE,
    answer,
    nothing,
    read_json,
    read_query,
)
from pulsarcast.daemon.calls import ANOTHER_LOG, PATIENCE_S, Call, Index, Operation
from pulsarcast.model import api
from pulsarcast.model.errors import Busy, Gone, LocalError, LogChanged, NotFollowed
from pulsarcast.model.ids import Cid, cid_text, parse_cid, peer_text
from pulsarcast.model.pages import MEDIA_TYPE, encode_page
from pulsarcast.model.publications import Publication
from pulsarcast.storage.logs import LogState

PAGE_BYTES: Final = 4 << 20
"""A page ends with the event that takes it beyond this."""
STEP_BYTES: Final = 128 << 10
"""What is read from the disk before anybody else has a turn."""


class LogQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which events of which log: start <= index < end."""

    log: str
    start: Index
    end: Index


async def show_log(call: Call) -> Response:
    """What the node keeps of a topic."""
    insight = call.service.insight
    cid = await call.topic()
    state = _log(call, cid)
    descriptor = insight.descriptor(cid)
    return answer(
        api.LogView(
            topic=cid_text(cid),
            name=descriptor.name,
            author=peer_text(descriptor.author),
            version=descriptor.number,
            version_id=cid_text(descriptor.cid),
            subtopics={name: cid_text(below) for name, below in descriptor.subtopics.items()},
            store=insight.store_id,
            log=state.log,
            oldest=state.oldest,
            newest=state.newest,
            attributes=api.rules_view(descriptor.attributes),
        )
    )


async def read_log(call: Call) -> Response:
    """A page of a log, as its events are on the disk."""
    insight = call.service.insight
    cid = await call.topic()
    query = read_query(call.request, LogQuery)
    _check(_log(call, cid), query)
    events: list[tuple[int, int, bytes]] = []
    size, start = 0, query.start
    while start < query.end and size < PAGE_BYTES:
        some = insight.read_log(cid, start, query.end, STEP_BYTES)
        if not some:
            break
        events += some
        size += sum(len(block) for _, _, block in some)
        start = some[-1][0] + 1
        await trio.lowlevel.checkpoint()
    # Retention, or whoever left the topic, may have been at work between two steps.
    _check(_log(call, cid), query)
    return Response(encode_page(events), 200, SAFE, MEDIA_TYPE)


def _log(call: Call, topic: Cid) -> LogState:
    state = call.service.insight.log(topic)
    if state is None:
        raise NotFollowed("the node does not follow this topic: subscribe to it first")
    return state


def _check(state: LogState, query: LogQuery) -> None:
    if state.log != query.log:
        raise LogChanged(ANOTHER_LOG)
    if query.start < state.oldest and query.start < query.end:
        raise Gone(f"retention has dropped these events: start at {state.oldest}")


async def follow_topic(call: Call) -> Response:
    """Keep a topic's log, whether or not anybody listens."""
    service = call.service
    cid = await call.topic()
    given = await read_json(call.request, api.Follow, service.settings["http.body_bytes_max"])
    call.check_below(below=given.below)
    if not service.insight.is_subscribed(cid):
        service.check_room()
    await service.node.follow(cid, start=given.start, below=given.below)
    return nothing()


async def publish_many(call: Call) -> Response:
    """Publish many events with few commits."""
    service = call.service
    cid = await call.topic()
    given = await read_json(call.request, api.NewEvents, service.settings["http.body_bytes_max"])
    service.check_room()
    events = [
        Publication(
            payload=api.payload_from(each),
            name=each.name,
            attributes={name: api.attribute_from(value) for name, value in each.attributes.items()},
            parents=[parse_cid(parent) for parent in each.parents],
            idempotency_key=each.idempotency_key,
            created_us=each.created_us,
        )
        for each in given.events
    ]
    results: list[api.BatchResult] = []
    published = await service.node.publish_many(cid, events, ack=given.ack, patience_s=PATIENCE_S)
    refused = published[0] if published else None
    if isinstance(refused, Busy):
        # They keep their order: the others have waited behind it.
        raise refused
    for found in published:
        if isinstance(found, LocalError):
            code, after_s = found.code, found.after_s or None
            results.append(api.BatchResult(error=str(found), code=code, after_s=after_s))
        else:
            results.append(api.BatchResult(id=found.id, replicas=found.replicas))
    return answer(api.BatchResults(results))


BULK: Final = (
    Operation(
        method="GET", path="/v1/topics/{topic}/log", name="show_log",
        summary="What the node keeps of a topic, and the id of that log.", scope="read",
        handle=show_log, answer=api.LogView, errors=(404,), of_one_topic=True,
    ),
    Operation(
        method="GET", path="/v1/topics/{topic}/log/events", name="read_log",
        summary="Signed events of a log as they are on the disk, some MiB at a time.",
        scope="read", handle=read_log, query=LogQuery, answer=MEDIA_TYPE, errors=(404, 409, 410),
        of_one_topic=True,
    ),
    Operation(
        method="POST", path="/v1/topics/{topic}/subscription", name="follow_topic",
        summary="Keep a topic's log, whether or not anybody listens.", scope="read",
        handle=follow_topic, body=api.Follow, status=204, errors=(404, 507), of_one_topic=True,
    ),
    Operation(
        method="POST", path="/v1/topics/{topic}/batch", name="publish_many",
        summary="Publish up to a thousand events, in their order.", scope="publish",
        handle=publish_many, body=api.NewEvents, answer=api.BatchResults,
        errors=(404, 413, 507), of_one_topic=True,
    ),
)  # fmt: skip
