"""The same subscriptions as a WebSocket: events one way, words of what is done the other."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.websockets import WebSocket, WebSocketDisconnect

from pulsarcast.daemon.answers import problem, read_query
from pulsarcast.daemon.calls import Call
from pulsarcast.daemon.service import Service
from pulsarcast.daemon.streams import LINES, STREAMS, StreamQuery, begin, relay, subscribed
from pulsarcast.model import api
from pulsarcast.model.errors import LocalError
from pulsarcast.network.subscriptions import Event

POLICY: Final = 1008
GOING: Final = 1001
REASON_MAX: Final = 100
"""Characters of a reason; a WebSocket takes 123 bytes."""
_done: Final = msgspec.json.Decoder(api.Done)


async def serve_socket(service: Service, socket: WebSocket) -> None:
    """One subscription over one WebSocket."""
    scope = socket.scope
    scope["is_stream"] = True
    # What a call is judged by is the same; a WebSocket only has no method.
    request = Request({**scope, "type": "http", "method": "GET"})
    try:
        call = Call(service, request, STREAMS[0])
        topic = await call.topic()
        query = read_query(request, StreamQuery)
        call.check_below(below=query.below)
        start = await begin(service, request, topic, query)
    except LocalError as error:
        await _refuse(socket, error)
        return
    try:
        async with subscribed(service, topic, query, start) as events:
            await socket.accept()

            async def give(batch: list[Event]) -> None:
                if not batch:
                    await socket.send_text('{"here":true}')
                for event in batch:
                    await socket.send_text(LINES.json(event, service.peer_names).decode())

            async def gone() -> None:
                while True:
                    try:
                        done = _done.decode(await socket.receive_text())
                        if done.index:
                            events.acknowledge(done.index, events.topic)
                        for subtopic, index in done.subtopics.items():
                            events.acknowledge(index, subtopic)
                    except (WebSocketDisconnect, msgspec.DecodeError, KeyError, LocalError):
                        return

            why = await relay(service, call.token, events, give, gone)
            if why is None:
                await socket.close(GOING)
            else:
                await socket.close(POLICY, f"{why.code}: {why.message}"[:REASON_MAX])
    except LocalError as error:
        await _refuse(socket, error)
    except WebSocketDisconnect:
        return


async def _refuse(socket: WebSocket, error: LocalError) -> None:
    """Say why not, while the request for a WebSocket is still one of HTTP."""
    await socket.send_denial_response(problem(error))
