"""Library, client and command line call one thing by one name, so that they cannot drift apart.

Where one face has something that another lacks, the tables here say so, and why.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import click
import pytest

from pulsarcast import Node, Publication, TopicSettings
from pulsarcast.cli.main import main
from pulsarcast.client import AsyncClient, Client
from pulsarcast.daemon.app import ALL
from pulsarcast.daemon.streams import StreamQuery
from pulsarcast.model import api

NODE_ONLY = {
    "addresses", "halted", "home", "identity", "open", "peer_id",
}  # fmt: skip
"""A client reads these from `status`, and opens no node."""
CLIENT_ONLY = {
    "aliases", "close", "drop_alias", "log", "log_pages", "make_token", "metrics", "open_page",
    "peer_names", "revoke_token", "set_alias", "set_peer_name", "drop_peer_name", "status",
    "tokens", "url",
}  # fmt: skip
"""The daemon's own: local names, tokens, the page, meters, whole logs."""
CLIENT_OPTIONS = {"alias", "patience_s"}
"""A client's connection may break; a daemon keeps aliases."""
NODE_OPTIONS = {"created_us", "take_over"}
"""The daemon takes readers over by itself, and takes `created_us` with `publish_many`."""
SETTINGS_OF_NODE = {"root", "extensions"}
"""Settings for which HTTP has no words."""


def public(thing: type) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def options(function: Callable[..., Any]) -> dict[str, Any]:
    given = inspect.signature(function).parameters
    return {name: each.default for name, each in given.items() if name != "self"}


SHARED = sorted((public(Node) - NODE_ONLY) & public(Client))


def test_the_library_and_the_client_have_the_same_methods() -> None:
    assert public(Node) - NODE_ONLY == public(Client) - CLIENT_ONLY
    assert public(Client) == public(AsyncClient)


@pytest.mark.parametrize("name", SHARED)
def test_a_method_has_the_same_options_in_library_and_client(name: str) -> None:
    node, client = options(getattr(Node, name)), options(getattr(Client, name))
    assert client == options(getattr(AsyncClient, name))
    assert node.keys() - NODE_OPTIONS == client.keys() - CLIENT_OPTIONS
    assert {each: node[each] for each in node.keys() & client.keys()} == {
        each: client[each] for each in node.keys() & client.keys()
    }


def test_settings_and_events_have_the_same_fields_in_library_and_http() -> None:
    settings = set(TopicSettings.__struct_fields__)
    assert settings - SETTINGS_OF_NODE == set(api.SettingsView.__struct_fields__)
    publication = set(options(Publication))
    assert publication == set(api.BatchEvent.__struct_fields__) - {"encoding"}


def test_a_subscription_over_http_has_the_clients_options() -> None:
    of_the_caller = {"self", "topic", "manual", "patience_s"}
    assert set(StreamQuery.__struct_fields__) == options(Client.subscribe).keys() - of_the_caller


@pytest.mark.parametrize(
    "name",
    [
        "find_topics",
        "publish",
        "publish_many",
        "subscribe",
        "unsubscribe",
        "history",
        "fetch",
        "walk",
    ],
)
def test_an_operation_over_http_is_called_as_the_clients_method(name: str) -> None:
    assert name in {each.name for each in ALL}


COMMANDS = {
    "topic create": ("create_topic", set()),
    "topic update": ("update_topic", {"drop_subtopic"}),
    "topic readers": ("readers", set()),
    "topic find": ("find_topics", set()),
    "publish": ("publish", {"text", "file", "lines"}),
    "subscribe": ("subscribe", {"count"}),
    "history": ("history", set()),
    "fetch": ("fetch", set()),
    "walk": ("walk", set()),
    "rebuild": ("rebuild", set()),
    "unsubscribe": ("unsubscribe", {"name"}),
}
"""Which method a command calls, and what else it takes: sources, an end, one reader alone,
a sub-topic to remove."""
SAID_OF_SETTINGS = {"is_open", "unlist", "retention_days", "retention_count", "retention_bytes"}
CONNECTION = {"context", "url", "token", "home", "wait", "as_json"}


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_has_the_options_of_its_method(words: str) -> None:
    method, more = COMMANDS[words]
    found: click.Command = main
    with click.Context(main) as context:
        for word in words.split():
            assert isinstance(found, click.Group)
            found = found.get_command(context, word) or pytest.fail(words)
    given = {str(each.name) for each in found.params} - CONNECTION - more - SAID_OF_SETTINGS
    wanted = set(options(getattr(Client, method)))
    if "settings" in wanted:
        wanted |= set(api.SettingsView.__struct_fields__)
    # An option that may be repeated is in the singular.
    assert {each for each in given if {each, f"{each}s"}.isdisjoint(wanted)} == set()
