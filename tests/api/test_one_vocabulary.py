"""Library, client, HTTP and command line call one thing by one name, and cannot drift apart.

Where one face has something that another lacks, the tables here say so, and why. An entry that is
needed no more fails, too.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import click
import pytest

from pulsarcast import Node, Publication, TopicSettings
from pulsarcast.cli.main import main
from pulsarcast.client import AsyncClient, Client
from pulsarcast.client.contexts import Contexts
from pulsarcast.daemon.app import ALL
from pulsarcast.daemon.asyncio_node import asyncio_node
from pulsarcast.daemon.settings import SETTINGS
from pulsarcast.model import api
from pulsarcast.model.topic_types import AttributeRule, Retention
from pulsarcast.network.subscriptions import Subscription as NodeSubscription
from pulsarcast.storage.backup import backup, restore

# What one face alone has, and why.

NODE_ONLY: Final = {
    "addresses": "status has them",
    "halted": "status has it",
    "home": "a client may be on another machine",
    "identity": "settings over HTTP take texts",
    "open": "a client opens no node",
    "peer_id": "status has it",
    "reach": "status has it",
    "relaying": "status has it",
}
CLIENT_ONLY: Final = {
    **dict.fromkeys(("aliases", "set_alias", "drop_alias"), "the daemon keeps local names"),
    **dict.fromkeys(("peer_names", "set_peer_name", "drop_peer_name"), "so it does of peers"),
    **dict.fromkeys(("tokens", "create_token", "revoke_token"), "a program is its own node's user"),
    **dict.fromkeys(("log", "log_pages"), "for Spark, which reads whole logs from elsewhere"),
    **dict.fromkeys(("status", "metrics", "open_page"), "the daemon's own state"),
    "close": "of the connection",
}
NODE_OPTIONS: Final = {"subscribe take_over": "the daemon always takes a reader over"}
CLIENT_OPTIONS: Final = {
    "create_topic alias": "the daemon keeps local names",
    "join alias": "the daemon keeps local names",
    "subscribe patience_s": "a connection to a daemon may break",
}
NODE_SETTINGS: Final = {
    "root": "of the simulator's trees: HTTP has no word for it",
    "extensions": "of later versions: HTTP has no word for them",
}
HTTP_FIELDS: Final = {
    **dict.fromkeys(
        ("publish encoding", "BatchEvent encoding"), "JSON has no bytes; a client has them"
    ),
    "acknowledge subtopics": "many offsets in one request; a client's method moves one",
}
CLIENT_FIELDS: Final = {
    **dict.fromkeys(
        ("publish patience_s", "publish_many patience_s", "subscribe patience_s"),
        "a client tries again by itself",
    ),
    "subscribe manual": "a client acknowledges by requests of their own",
    "acknowledge subtopic": "see subtopics, of HTTP",
}

OPERATION_NAMES: Final = {
    "list_topics": "topics",
    "show_topic": "topic",
    "list_peer_names": "peer_names",
    "list_aliases": "aliases",
    "list_tokens": "tokens",
    "list_readers": "readers",
    "forget_reader": "forget",
    "follow_topic": "follow",
    "show_log": "log",
    "read_log": "log_pages",
}
"""Methods whose operation has a verb more: generated clients have one room for all names."""
OPERATIONS_ALONE: Final = {
    "health": "for probes, which have no token",
    "ready": "for probes, which have no token",
}
METHODS_WITHOUT_OPERATION: Final = {
    "rebuild": "walks, page by page",
    "metrics": "/metrics, by Prometheus' own rules",
    "close": "of the connection",
}

COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "topic create": ("create_topic",),
    "topic ensure": ("ensure_topic",),
    "topic move": ("move_name",),
    "topic update": ("update_topic",),
    "topic show": ("topic",),
    "topic list": ("topics", "find_topics"),
    "topic find": ("find_topics",),
    "topic readers": ("readers",),
    "topic alias": ("set_alias", "drop_alias", "aliases"),
    "publish": ("publish",),
    "subscribe": ("subscribe",),
    "unsubscribe": ("unsubscribe", "forget"),
    "invite": ("invite",),
    "join": ("join",),
    "history": ("history",),
    "fetch": ("fetch",),
    "walk": ("walk",),
    "rebuild": ("rebuild",),
    "status": ("status",),
    "peers": ("peers",),
    "name": ("set_peer_name", "drop_peer_name", "peer_names"),
    "open": ("open_page",),
    "token create": ("create_token",),
    "token list": ("tokens",),
    "token revoke": ("revoke_token",),
}
"""The methods that a command calls; its options are those of the first, and some of the others."""
COMMANDS_ALONE: Final = {
    **dict.fromkeys(("init", "daemon", "config", "id"), "of a home: see Node.open below"),
    **dict.fromkeys(("backup", "restore"), "of a home: see below"),
    "context": "of this user's own file: see below",
    **dict.fromkeys(("top", "doctor"), "pictures of several methods"),
    **dict.fromkeys(("simulate", "testbed", "pipeline"), "use no daemon's methods"),
    "version": "of the program",
}
METHODS_WITHOUT_COMMAND: Final = {
    "add_bootstrap": "daemon --bootstrap",
    "acknowledge": "a command acknowledges what it has printed",
    "publish_many": "publish --stdin",
    "follow": "a subscription that no program reads is for programs",
    **dict.fromkeys(("log", "log_pages"), "for Spark"),
    "metrics": "for Prometheus",
    "close": "of the connection",
}
COMMAND_OPTIONS: Final = {
    **dict.fromkeys(
        ("topic create unlist", "topic ensure unlist", "topic update unlist"),
        "an empty description and no tags, which cannot be typed",
    ),
    "topic update drop_subtopics": "a program gives all sub-topics that shall be",
    **dict.fromkeys(("publish text", "publish file", "publish stdin"), "ways to give a payload"),
    "publish json_payload": "json of a program's, which gives a value",
    "subscribe count": "a program stops to iterate",
    **dict.fromkeys(("topic alias drop", "name drop"), "one command for three methods"),
    "status address": "one field of it, for scripts",
    "open print": "without a browser",
}
METHOD_OPTIONS: Final = {
    "publish payload": "text, file or stdin",
    "publish json": "--json says that the output is JSON: see json_payload",
    **dict.fromkeys(("publish patience_s", "subscribe patience_s"), "a command waits for ever"),
    "subscribe manual": "a command acknowledges what it has printed",
    "walk cursor": "a command goes from page to page by itself",
    **dict.fromkeys(
        ("topic create settings", "topic ensure settings", "topic update settings"),
        "an option for each",
    ),
}
RETENTION: Final = {
    "retention_days": "age_s",
    "retention_count": "count",
    "retention_bytes": "bytes",
}
"""A flag for each field of `retention`. People count days, and programs seconds."""
EVERYWHERE: Final = {"context", "url", "token", "home", "wait", "json"}
"""Which daemon, and for whom the output is."""
ASKING: Final = {"yes"}
"""Commands ask before something is lost; programs are not asked."""

OPEN_ONLY: Final = {
    "network": "a setting of config.toml: it never changes",
    "dial_from": "for tests, on machines with several addresses",
    "parameters": "for simulations and tests",
    "trace_folder": "a daemon's traces are in its home",
    "run_id": "for testbeds, which name their runs",
}
DAEMON_ONLY: Final = {
    "http": "a node serves no HTTP",
    "behind_proxy": "a node serves no HTTP",
    "log_level": "a program sets up its own log",
}
CLIENT_ALONE: Final = {
    "answer_s": "for programs that know their daemon",
    "verify": "a command takes $SSL_CERT_FILE",
    "transport": "for tests",
}


def public(thing: type) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    given = inspect.signature(function).parameters
    return {name: each for name, each in given.items() if name not in ("self", "cls")}


def of(operation: str, table: Mapping[str, str]) -> set[str]:
    """The options of one operation in a table."""
    return {each.rpartition(" ")[2] for each in table if each.rpartition(" ")[0] == operation}


def command(words: str) -> click.Command:
    found: click.Command = main
    with click.Context(main) as context:
        for word in words.split():
            assert isinstance(found, click.Group)
            found = found.get_command(context, word) or pytest.fail(words)
    return found


def typed(found: click.Command) -> dict[str, click.Parameter]:
    """What a command takes, by the word that is typed; one that may be repeated in the plural."""
    words: dict[str, click.Parameter] = {}
    for each in found.params:
        flags = [flag for flag in each.opts if flag.startswith("--")]
        word = flags[0][2:].replace("-", "_") if flags else str(each.name)
        is_repeated = isinstance(each, click.Option) and each.multiple
        words[f"{word}s" if is_repeated and not word.endswith("s") else word] = each
    return words


SHARED: Final = sorted((public(Node) - NODE_ONLY.keys()) & public(Client))


# Library and client.


def test_the_library_and_the_client_have_the_same_methods() -> None:
    assert public(Node) - NODE_ONLY.keys() == public(Client) - CLIENT_ONLY.keys()
    assert public(Client) == public(AsyncClient)
    assert NODE_ONLY.keys() <= public(Node)
    assert CLIENT_ONLY.keys() <= public(Client)


@pytest.mark.parametrize("name", SHARED)
def test_a_method_has_the_same_options_in_library_and_client(name: str) -> None:
    node, client = parameters(getattr(Node, name)), parameters(getattr(Client, name))
    assert node.keys() - client.keys() == of(name, NODE_OPTIONS)
    assert client.keys() - node.keys() == of(name, CLIENT_OPTIONS)
    for each in node.keys() & client.keys():
        assert node[each].default == client[each].default, each
        assert node[each].kind == client[each].kind, each
    together = [each for each in client if each in node and client[each].kind.value < 2]
    assert together == [each for each in node if each in client and node[each].kind.value < 2]


@pytest.mark.parametrize("name", sorted(public(Client)))
def test_both_clients_have_the_same_options(name: str) -> None:
    blocking, awaiting = parameters(getattr(Client, name)), parameters(getattr(AsyncClient, name))
    assert list(blocking) == list(awaiting)
    for each in blocking:
        assert blocking[each].default == awaiting[each].default, each
        assert blocking[each].kind == awaiting[each].kind, each


def test_both_clients_are_made_and_read_alike() -> None:
    assert list(parameters(Client)) == list(parameters(AsyncClient))
    for of_node, of_client in ((NodeSubscription.acknowledge, _subscription(Client).acknowledge),):
        assert list(parameters(of_node)) == list(parameters(of_client))
    assert public(_subscription(Client)) == public(_subscription(AsyncClient))


def _subscription(client: type) -> Any:
    module = inspect.getmodule(client)
    name = {"Client": "Subscription", "AsyncClient": "AsyncSubscription"}[client.__name__]
    return getattr(module, name)


# HTTP.


def fields(kind: Any) -> set[str]:
    return set(kind.__struct_fields__)


def test_settings_and_events_have_the_same_fields_in_library_and_http() -> None:
    assert fields(TopicSettings) - fields(api.SettingsView) == NODE_SETTINGS.keys()
    assert fields(api.SettingsView) <= fields(TopicSettings)
    assert set(parameters(Retention)) == fields(api.RetentionView) == set(RETENTION.values())
    assert set(parameters(AttributeRule)) == fields(api.AttributeRuleView)
    assert fields(api.BatchEvent) - set(parameters(Publication)) == of("BatchEvent", HTTP_FIELDS)
    assert set(parameters(Publication)) <= fields(api.BatchEvent)


OPERATIONS: Final = {OPERATION_NAMES.get(each.name, each.name): each for each in ALL}


def test_every_method_of_the_client_is_an_operation_of_the_same_name() -> None:
    assert OPERATIONS.keys() - public(Client) == OPERATIONS_ALONE.keys()
    assert public(Client) - OPERATIONS.keys() == METHODS_WITHOUT_OPERATION.keys()
    assert OPERATION_NAMES.keys() <= {each.name for each in ALL}


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() & public(Client)))
def test_an_operation_over_http_has_the_clients_options(name: str) -> None:
    operation = OPERATIONS[name]
    given = set(re.findall(r"{(\w+)}", operation.path))
    for kind in (operation.query, operation.body):
        given |= set() if kind is None else fields(kind)
    given |= {each.lower().replace("-", "_") for each, _ in operation.headers} - {"last_event_id"}
    wanted = set(parameters(getattr(Client, name)))
    assert given - wanted == of(name, HTTP_FIELDS)
    assert wanted - given == of(name, CLIENT_FIELDS)


# The command line.


def test_every_command_calls_a_method_and_every_method_has_a_command() -> None:
    with click.Context(main) as context:
        known = set(main.list_commands(context))
        for name in known - COMMANDS_ALONE.keys():
            found = main.get_command(context, name)
            below = found.list_commands(context) if isinstance(found, click.Group) else [""]
            for word in below:
                assert f"{name} {word}".strip() in COMMANDS
    assert COMMANDS_ALONE.keys() <= known
    called = {method for methods in COMMANDS.values() for method in methods}
    assert public(Client) - called == METHODS_WITHOUT_COMMAND.keys()


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_has_the_options_of_its_method(words: str) -> None:
    first, *others = (parameters(getattr(Client, method)) for method in COMMANDS[words])
    given = typed(command(words))
    said = given.keys() - EVERYWHERE - ASKING - (RETENTION.keys() if "settings" in first else set())
    wanted = set(first)
    if "settings" in first:
        wanted |= fields(api.SettingsView) - {"retention"}
        assert given.keys() >= RETENTION.keys()
    extra = {each for other in others for each in other}
    assert said - wanted - extra == of(words, COMMAND_OPTIONS)
    assert wanted - said == of(words, METHOD_OPTIONS)
    for each in said & first.keys():
        if isinstance(given[each], click.Option):
            default = given[each].get_default(click.Context(command(words)))
            default = None if isinstance(default, enum.Enum) else default  # click's "not set"
            assert (default or None) == (first[each].default or None), each


@pytest.mark.parametrize("words", [*COMMANDS, "top", "doctor"])
def test_a_command_finds_its_daemon_as_a_client_does(words: str) -> None:
    which = set(parameters(Client)) - CLIENT_ALONE.keys()
    assert which == EVERYWHERE - {"wait", "json"}
    assert typed(command(words)).keys() >= EVERYWHERE


def test_a_node_is_opened_by_the_words_that_start_a_daemon() -> None:
    opened, flags = parameters(Node.open), typed(command("daemon"))
    # A list is in the singular everywhere: listen, announce, bootstrap.
    said = {each.removesuffix("s") if f"{each}"[:-1] in opened else each for each in flags}
    assert opened.keys() - said == OPEN_ONLY.keys()
    assert said - opened.keys() == DAEMON_ONLY.keys()
    assert typed(command("init")).keys() - {"json"} <= flags.keys()
    settings = {each.name for each in SETTINGS}
    assert {each for each in settings if each.startswith("node.")} <= {
        f"node.{each}" for each in opened
    }
    assert {"trace.level", "log.level", "http.address", "http.behind_proxy"} <= settings


def test_a_node_is_opened_alike_under_trio_and_under_asyncio() -> None:
    assert parameters(asyncio_node).keys() == parameters(Node.open).keys()
    # What is written in the function: its signature is that of `Node.open`.
    code = inspect.unwrap(asyncio_node).__code__
    assert code.co_varnames[: code.co_argcount] == ("home",)


@pytest.mark.parametrize(
    ("words", "function"),
    [("backup", backup), ("restore", restore), ("context add", Contexts.add),
     ("context remove", Contexts.remove)],
)  # fmt: skip
def test_a_command_of_this_machine_has_the_words_of_its_function(
    words: str, function: Callable[..., Any]
) -> None:
    assert set(typed(command(words))) - ASKING == set(parameters(function))


def test_no_entry_of_a_table_has_outlived_its_operation() -> None:
    methods = public(Client) | public(Node) | {"BatchEvent"}
    for table, known in (
        (NODE_OPTIONS, methods),
        (CLIENT_OPTIONS, methods),
        (HTTP_FIELDS, methods),
        (CLIENT_FIELDS, methods),
        (COMMAND_OPTIONS, COMMANDS.keys()),
        (METHOD_OPTIONS, COMMANDS.keys()),
    ):
        assert {each.rpartition(" ")[0] for each in table} <= known
