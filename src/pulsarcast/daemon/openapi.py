"""The description of the API for programs: OpenAPI 3.1, made from the list of operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from pulsarcast import __version__
from pulsarcast.daemon.answers import JSON
from pulsarcast.daemon.calls import OCTETS, Operation
from pulsarcast.daemon.connection import HEAD_BYTES_MAX
from pulsarcast.model.api import Problem

_REFUSALS: Final = {
    400: "The request is not as it should be.",
    401: "A token is missing, wrong, or revoked.",
    403: "The token does not allow it, or the request comes from the page of somebody else.",
    404: "There is no such thing.",
    405: "This can be done to something else.",
    409: "It is taken already, or is another one by now.",
    410: "It was there, and is not kept any more.",
    413: "The request is too large.",
    415: "The body is of another type than it should be.",
    422: "It is well said and cannot be done; the answer says why.",
    421: "The name in Host is not ours.",
    429: "Too much is under way, or the topic's members do not keep up: come back later.",
    503: "The node promises nothing at the moment.",
    507: "The disk has no room left for it.",
}
_BINARY: Final = {"type": "string", "format": "binary"}
_PARAMETERS: Final = {
    "topic": "A topic: its content id, an alias, or author/name with the slash as %2F.",
    "event": "An event, by its content id.",
    "alias": "An alias.",
    "name": "The name of a reader.",
    "token_id": "The id of a token.",
    "peer": "A peer: its id, or the name that it has here.",
}


def describe(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole description."""
    operations = tuple(operations)
    kinds: list[Any] = [Problem]
    for each in operations:
        kinds += [kind for kind in (each.body, each.answer) if isinstance(kind, type)]
    _, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pulsarcast",
            "version": __version__,
            "description": "Publish/subscribe with no broker: the API of one node.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": _parameters(operation),
        "responses": _responses(operation),
    }
    if operation.scope is None:
        described["security"] = []
    else:
        described["description"] = f"Needs a token with the scope `{operation.scope}`."
    if operation.body is not None:
        content: dict[str, Any] = {JSON: {"schema": _ref(operation.body)}}
        if operation.octets:
            content[OCTETS] = {"schema": _BINARY}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]:
        schema = {"type": "string", "minLength": 1}
        found.append(
            {
                "name": name,
                "in": "path",
                "required": True,
                "description": _PARAMETERS[name],
                "schema": schema,
            }
        )
    if operation.query is not None:
        described: dict[str, Any] = msgspec.json.schema(operation.query)
        kind = described["$defs"][operation.query.__name__]
        needed = kind.get("required", ())
        for name, shape in kind["properties"].items():
            found.append({"name": name, "in": "query", "required": name in needed, "schema": shape})
    for name, text in operation.headers:
        found.append(
            {
                "name": name,
                "in": "header",
                "required": False,
                "description": text,
                "schema": {"type": "string", "minLength": 1, "maxLength": 256},
            }
        )
    return found


def _responses(operation: Operation) -> dict[str, Any]:
    kind = operation.answer
    good: dict[str, Any] = {"description": "Done."}
    if isinstance(kind, str):
        text_or_not = {"type": "string"} if kind.startswith("text/") else _BINARY
        good["content"] = {kind: {"schema": text_or_not}}
    elif kind is not None:
        good["content"] = {JSON: {"schema": _ref(kind)}}
    responses = {str(operation.status): good}
    errors = {400, 403, 405, 421, 422, 429, 503, *operation.errors}
    if operation.scope is not None:
        errors.add(401)
    if operation.body is not None:
        errors |= {413, 415}
    for status in sorted(errors):
        # Of its health a node speaks in one form, whatever it is.
        shape = kind if operation.name == "ready" and status == 503 else Problem
        schemas = [_ref(Problem)] if shape is Problem else [_ref(Problem), _ref(shape)]
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        responses[str(status)] = {
            "description": _REFUSALS[status],
            "content": {JSON: {"schema": schema}},
        }
    # From below the application, and so without a body.
    kib = HEAD_BYTES_MAX >> 10
    responses["431"] = {
        "description": f"Path, query and headers are longer than {kib} KiB together."
    }
    return responses


def _ref(kind: Any) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
