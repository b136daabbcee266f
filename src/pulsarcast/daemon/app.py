"""The application that answers HTTP: every operation at its path, behind the gate."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Final

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from pulsarcast.daemon.answers import JSON, SAFE, problem
from pulsarcast.daemon.bulk import BULK
from pulsarcast.daemon.calls import Call, Operation
from pulsarcast.daemon.gate import Gate
from pulsarcast.daemon.metrics import Meters
from pulsarcast.daemon.openapi import describe
from pulsarcast.daemon.operations import OPERATIONS
from pulsarcast.daemon.service import Service
from pulsarcast.daemon.sessions import SESSION_S
from pulsarcast.daemon.sockets import serve_socket
from pulsarcast.daemon.streams import STREAMS
from pulsarcast.model.errors import Internal, LocalError, MethodNotAllowed, NotFound

ALL: Final = (*OPERATIONS, *BULK, *STREAMS)
PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
ASSETS: Final = {
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
}

_log = logging.getLogger(__name__)


def build(service: Service, meters: Meters) -> Gate:
    """Everything behind the gate."""
    metrics = Operation(
        method="GET", path="/metrics", name="metrics", summary="Meters, for Prometheus.",
        scope="read", handle=_metrics_of(meters), answer="text/plain",
    )  # fmt: skip
    description = msgspec.json.encode(describe((*ALL, metrics)))
    openapi = Operation(
        method="GET", path="/v1/openapi.json", name="openapi", summary="This description.",
        scope="read", handle=_constant(description, JSON), of_one_topic=True,
    )  # fmt: skip
    by_path: dict[str, dict[str, Operation]] = {}
    for each in (*ALL, metrics, openapi):
        by_path.setdefault(each.path, {})[each.method] = each
    routes: list[BaseRoute] = [
        Route(path, _endpoint(service, operations), methods=list(operations))
        for path, operations in by_path.items()
    ]

    async def socket(websocket: WebSocket) -> None:
        websocket.scope["route_name"] = "subscribe"
        await serve_socket(service, websocket)

    routes.append(WebSocketRoute("/v1/topics/{topic}/subscribe", socket))
    routes.append(Route("/", _page(service), methods=["GET"]))
    routes += [Route(f"/{name}", _asset(name, kind)) for name, kind in ASSETS.items()]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _unknown, Exception: _broken})
    return Gate(
        app,
        tokens=service.tokens,
        sessions=service.sessions,
        connections_max=service.settings["http.connections_max"],
        counter=meters.requests,
        seconds=meters.seconds,
    )


def _endpoint(
    service: Service, operations: Mapping[str, Operation]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        operation = operations[method]
        request.scope["route_name"] = operation.name
        try:
            return await operation.handle(Call(service, request, operation))
        except LocalError as error:
            return problem(error)

    return endpoint


def _metrics_of(meters: Meters) -> Callable[[Call], Awaitable[Response]]:
    async def handle(call: Call) -> Response:
        return Response(generate_latest(meters.registry), 200, SAFE, CONTENT_TYPE_LATEST)

    return handle


def _constant(body: bytes, media_type: str) -> Callable[[Call], Awaitable[Response]]:
    async def handle(call: Call) -> Response:
        return Response(body, 200, SAFE, media_type)

    return handle


# The page.


def _page(service: Service) -> Callable[[Request], Awaitable[Response]]:
    html = _read("page.html")

    async def page(request: Request) -> Response:
        request.scope["route_name"] = "page"
        code = request.query_params.get("code")
        if code is None:
            return Response(
                html, 200, {**SAFE, "Content-Security-Policy": PAGE_POLICY}, "text/html"
            )
        secret = service.sessions.redeem(code)
        response = RedirectResponse("/", 303, SAFE)
        if secret is not None:
            response.set_cookie(
                service.sessions.cookie,
                secret,
                max_age=int(SESSION_S),
                httponly=True,
                samesite="strict",
                secure=service.url.startswith("https"),
            )
        return response

    return page


def _asset(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    body = _read(name)

    async def asset(request: Request) -> Response:
        request.scope["route_name"] = "asset"
        return Response(body, 200, SAFE, kind)

    return asset


def _read(name: str) -> bytes:
    return files("pulsarcast.daemon").joinpath("page", name).read_bytes()


# What went wrong.


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, allowed = request.scope["path"], (error.headers or {}).get("Allow", "")
    refusal: LocalError
    if error.status_code == 405:
        refusal = MethodNotAllowed(f"{path} takes {allowed}, not {request.method}")
    else:
        refusal = NotFound(f"there is nothing at {path}: /v1/openapi.json lists every operation")
    response = problem(refusal)
    response.headers.update(error.headers or {})
    return response


async def _broken(request: Request, error: Exception) -> Response:
    # Hypercorn is told, too, and is not heard (see `logs`).
    _log.error("%s broke", request.scope.get("route_name", "a request"), exc_info=error)
    return problem(Internal("this is our fault; the log has it"))
