"""Commands about topics: `topic create|ensure|move|show|list|find|update|alias`, `unsubscribe`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click
import msgspec

from pulsarcast.cli.output import confirm, emit, plain, yes_option
from pulsarcast.cli.remote import parent_of, remote, table
from pulsarcast.model import api
from pulsarcast.model.shown import short, whole
from pulsarcast.model.topic_types import ATTRIBUTE_TYPES, META

if TYPE_CHECKING:
    from pulsarcast.client import Client

ORDERS = ("none", "per-publisher", "causal", "total")
DISSEMINATIONS = ("tree", "cube")
LINKINGS = ("LAST_SEEN", "CUSTOM")
_REPEATED = {"requester": "requesters", "recovery_key": "recovery_keys", "tag": "tags"}
NAMED_MAX = 4
"""Bounds the peers that one line names."""
LISTED_MAX = 1000
"""Listed topics that the daemon names in one answer, at most."""


@click.group()
def topic() -> None:
    """Create, show and change topics."""


def setting_options(command: Any) -> Any:
    """The options for the settings of a topic."""
    for option in (
        click.option("--order", type=click.Choice(ORDERS), help="Delivery order."),
        click.option(
            "--dissemination",
            type=click.Choice(DISSEMINATIONS),
            help="Overlay that carries the events: a cube suits many concurrent publishers.",
        ),
        click.option(
            "--sequencer",
            multiple=True,
            metavar="PEER",
            help="Peer that sequences a total order. May be repeated: a majority must be up.",
        ),
        click.option(
            "--publisher",
            multiple=True,
            metavar="PEER",
            help="Peer that may publish, instead of the author alone. May be repeated.",
        ),
        click.option("--open", "is_open", is_flag=True, help="Allow every peer to publish."),
        click.option(
            "--request-to-publish/--no-request-to-publish",
            default=None,
            help="Take or refuse requests to publish by other peers.",
        ),
        click.option(
            "--requester",
            multiple=True,
            metavar="PEER",
            help="Peer that may request to publish, instead of every peer. May be repeated.",
        ),
        click.option(
            "--linking",
            type=click.Choice(LINKINGS, case_sensitive=False),
            help="Choice of an event's parents: by the node, the last event that it saw, "
            "or by the author of the event.",
        ),
        click.option(
            "--recovery-key",
            multiple=True,
            metavar="PEER",
            help="Peer that may change the topic if the author's key is lost. May be repeated.",
        ),
        click.option(
            "--retention-days", type=click.IntRange(min=1), help="Retention by age, in days."
        ),
        click.option(
            "--retention-count", type=click.IntRange(min=1), help="Retention by number of events."
        ),
        click.option(
            "--retention-bytes",
            type=click.IntRange(min=1),
            help="Retention by size of events, in bytes.",
        ),
        click.option(
            "--payload-bytes-max",
            type=click.IntRange(min=1),
            help="Largest payload of an event, in bytes.",
        ),
        click.option(
            "--attribute",
            multiple=True,
            metavar="NAME=TYPE[:MIN:MAX]",
            help="Attribute for filters, such as price=float:0:100 or symbol=str. May be repeated.",
        ),
        click.option(
            "--content-routing/--no-content-routing",
            default=None,
            help="Route events by their attributes to peers that subscribe with a filter.",
        ),
        click.option(
            "--description", help="A line for people. It lists the topic, for all peers to find."
        ),
        click.option(
            "--tag",
            multiple=True,
            help="Tag by which the topic is found. It lists the topic. May be repeated.",
        ),
        click.option("--unlist", is_flag=True, help="Remove the description and all tags."),
        click.option(
            "--subtopic",
            multiple=True,
            metavar="NAME=TOPIC",
            help="Sub-topic, and its name. May be repeated.",
        ),
    ):
        command = option(command)
    return command


def _named(subtopics: tuple[str, ...]) -> dict[str, str]:
    """The sub-topics that `--subtopic` names."""
    found: dict[str, str] = {}
    for each in subtopics:
        name, _, topic = each.partition("=")
        if not name or not topic:
            raise click.UsageError(f"--subtopic takes NAME=TOPIC, not {each!r}")
        found[name] = topic
    return found


def attribute_rule(text: str) -> api.AttributeRuleView:
    """An attribute of a schema, as NAME=TYPE or NAME=TYPE:MIN:MAX; either bound may be empty."""
    # A name may hold anything: what it is stands behind the last sign.
    name, _, rest = text.rpartition("=")
    kind, *bounds = rest.split(":")
    try:
        low, high = [_bound(kind, each) for each in bounds] or (None, None)
        if not name:
            raise ValueError("an attribute has a name")
        return msgspec.convert(
            {"name": name, "type": kind, "min": low, "max": high}, api.AttributeRuleView
        )
    except ValueError:
        kinds = ", ".join(ATTRIBUTE_TYPES)
        raise click.UsageError(
            f"--attribute takes NAME=TYPE or NAME=TYPE:MIN:MAX, not {text!r}; types are {kinds}"
        ) from None


def _bound(kind: str, text: str) -> int | float | str | None:
    if not text:
        return None
    if kind == "str":
        return text
    if kind != "float":
        return int(text)
    bound = float(text)
    if not math.isfinite(bound):
        raise ValueError("a bound is a number")
    return bound


def _changed(
    base: api.SettingsView,
    *,
    sequencer: tuple[str, ...],
    publisher: tuple[str, ...],
    is_open: bool,
    attribute: tuple[str, ...],
    retention_days: int | None,
    retention_count: int | None,
    retention_bytes: int | None,
    unlist: bool,
    **chosen: Any,
) -> api.SettingsView:
    """The settings with what was chosen; an option that is left out changes nothing."""
    changes: dict[str, Any] = {
        _REPEATED.get(name, name): list(value) if name in _REPEATED else value
        for name, value in chosen.items()
        if value is not None and value != ()
    }
    if sequencer:
        if changes.get("order", base.order) != "total":
            raise click.UsageError("--sequencer goes with --order total")
        changes["sequencers"] = list(sequencer)
        changes["publishers"] = None
    if publisher and is_open:
        raise click.UsageError("give --publisher or --open")
    if publisher or is_open:
        changes |= {"publishers": list(publisher) or None, "open": is_open}
    if attribute:
        changes["attributes"] = list(map(attribute_rule, attribute))
    if unlist:
        if "tags" in changes or "description" in changes:
            raise click.UsageError("give --unlist, or --description and --tag")
        changes |= {"description": "", "tags": []}
    kept = base.retention
    changes["retention"] = api.RetentionView(
        age_s=kept.age_s if retention_days is None else retention_days * 86_400,
        count=kept.count if retention_count is None else retention_count,
        bytes=kept.bytes if retention_bytes is None else retention_bytes,
    )
    return msgspec.structs.replace(base, **changes)


@topic.command("create")
@click.argument("name")
@click.option("--alias", help="Local name for the topic.")
@setting_options
@remote
def create(
    client: Client,
    name: str,
    alias: str | None,
    subtopic: tuple[str, ...],
    as_json: bool,
    **chosen: Any,
) -> None:
    """Create a topic; the node is its author."""
    settings = _changed(api.SettingsView(), **chosen)
    made = client.create_topic(name, settings, alias=alias, subtopics=_named(subtopic))
    emit(made, _made_text(made, name), as_json=as_json)


@topic.command("ensure")
@click.argument("name")
@setting_options
@remote
def ensure(
    client: Client, name: str, subtopic: tuple[str, ...], as_json: bool, **chosen: Any
) -> None:
    """Create a topic unless the node has one of this name with these settings.

    Without options the settings of the topic that there is are not compared.
    """
    left_out = {"is_open": False, "unlist": False}
    is_given = any(
        value not in (None, ()) and left_out.get(option) is not value
        for option, value in chosen.items()
    )
    settings = _changed(api.SettingsView(), **chosen) if is_given else None
    made = client.ensure_topic(name, settings, subtopics=_named(subtopic))
    emit(made, _made_text(made, name), as_json=as_json)


@topic.command("move")
@click.argument("name")
@click.argument("topic")
@remote
def move(client: Client, name: str, topic: str, as_json: bool) -> None:
    """Let a NAME of the node lead to another of its topics, for all peers.

    A peer that is subscribed to the topic that had the name goes on with that one.
    """
    moved = client.move_name(name, topic)
    emit(moved, f"{moved.author}/{name} leads to {moved.id} now", as_json=as_json)


def _made_text(made: api.TopicView, name: str) -> str:
    return f"{made.id}\nothers find it as {made.author}/{name}\n{_rights(made)}"


def _rights(made: api.TopicView) -> str:
    """Who may publish in a topic, in a sentence."""
    settings = made.settings
    if settings.open:
        return "every peer may publish"
    named = settings.publishers or []
    shown = ", ".join(short(peer, made.peer_names) for peer in named[:NAMED_MAX])
    if len(named) > NAMED_MAX:
        shown += f" and {len(named) - NAMED_MAX} more"
    who = "only its author" if named == [made.author] else f"only {shown}"
    asks = ", others may ask" if settings.request_to_publish else ""
    return f"{who} may publish{asks}"


@topic.command("show")
@click.argument("topic")
@remote
def show(client: Client, topic: str, as_json: bool) -> None:
    """Show the newest version of a topic."""
    found = client.topic(topic)
    settings = found.settings
    kept = settings.retention
    bounds = [
        text
        for text, value in (
            (f"{kept.age_s} s", kept.age_s),
            (f"{kept.count} events", kept.count),
            (f"{kept.bytes} bytes", kept.bytes),
        )
        if value is not None
    ]
    lines = [
        ("id", found.id),
        ("name", plain(found.name)),
        ("author", whole(found.author, found.peer_names)),
        *([("description", plain(settings.description))] if settings.description else []),
        *([("tags", plain(" ".join(settings.tags)))] if settings.tags else []),
        ("version", str(found.version)),
        ("order", settings.order),
        ("dissemination", settings.dissemination),
        *(_peers("sequencers", settings.sequencers, found) if settings.sequencers else []),
        *(
            [("publishers", "every peer")]
            if settings.open
            else _peers("publishers", settings.publishers, found)
        ),
        *_requests(found),
        ("linking", settings.linking),
        *_peers("recovery", settings.recovery_keys, found),
        ("retention", ", ".join(bounds) or "everything"),
        *[("attribute", _rule_text(rule)) for rule in settings.attributes or ()],
        ("routing", "content" if settings.content_routing else "topic"),
        ("aliases", " ".join(found.aliases) or "none"),
        *[(f"sub-topic {name}", cid) for name, cid in found.subtopics.items()],
        *[("note", plain(note)) for note in found.notes],
    ]
    emit(found, "\n".join(f"{name:13} {value}" for name, value in lines), as_json=as_json)


def _peers(label: str, peers: list[str] | None, topic: api.TopicView) -> list[tuple[str, str]]:
    """A line for each peer, the first one behind the label."""
    shown = [whole(peer, topic.peer_names) for peer in peers or ()] or ["none"]
    return [("" if at else label, each) for at, each in enumerate(shown)]


def _requests(topic: api.TopicView) -> list[tuple[str, str]]:
    settings = topic.settings
    if not settings.request_to_publish:
        return [("requests", "refused")]
    if settings.requesters is None:
        return [("requests", "taken")]
    return _peers("requests of", settings.requesters, topic)


def _rule_text(rule: api.AttributeRuleView) -> str:
    if rule.min is None and rule.max is None:
        return f"{rule.name} {rule.type}"
    low, high = ("" if bound is None else str(bound) for bound in (rule.min, rule.max))
    return f"{rule.name} {rule.type} {low}..{high}"


@topic.command("list")
@click.option("--author", metavar="PEER", help="List the listed topics of this author instead.")
@remote
def list_topics(client: Client, author: str | None, as_json: bool) -> None:
    """List the topics that the node follows, or those that an author lists."""
    if author is not None:
        _show_listings(client.find_topics(author=author, limit=LISTED_MAX), as_json=as_json)
        return
    found = client.topics()
    rows = [
        (
            " ".join(each.aliases) or plain(each.name),
            each.order,
            str(each.newest),
            _subscribed(each),
            parent_of(each),
            str(len(each.children)),
            each.id,
        )
        for each in found
    ]
    text = table(rows, "TOPIC", "ORDER", "EVENTS", "SUBSCRIBED", "PARENT", "CHILDREN", "ID")
    text += "".join(f"\n{line}" for each in found for line in _left_out(each))
    emit(found, text or "no topics yet: pulsarcast topic create NAME", as_json=as_json)


def _subscribed(topic: api.FollowedView) -> str:
    if topic.below is None:
        return "yes" if topic.subscribed else "no"
    joining = f", {topic.below.joining} to join" if topic.below.joining else ""
    return f"with {topic.below.followed} below{joining}"


def _left_out(topic: api.FollowedView) -> list[str]:
    """What to say of sub-topics that the node does not follow."""
    if topic.below is None or not topic.below.left_out_count:
        return []
    named = [f"{cid}: {why}" for cid, why in topic.below.left_out.items()]
    return [
        f"{plain(topic.name)}: {topic.below.left_out_count} sub-topics are not followed",
        *named,
    ]


@topic.command("find")
@click.argument("words", nargs=-1)
@click.option("--tag", multiple=True, help="Tag that the topics have. May be repeated.")
@click.option("--author", metavar="PEER", help="Author of the topics.")
@click.option(
    "--limit", type=click.IntRange(1, LISTED_MAX), default=100, help="Topics to show at most."
)
@remote
def find(
    client: Client,
    words: tuple[str, ...],
    tag: tuple[str, ...],
    author: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Find listed topics of the whole network that have all WORDS."""
    found = client.find_topics(" ".join(words), tags=tag, author=author, limit=limit)
    _show_listings(found, as_json=as_json)


def _show_listings(found: api.Listings, *, as_json: bool) -> None:
    rows = [
        (
            plain(each.name),
            plain(" ".join(each.tags)),
            short(each.author, each.peer_names),
            each.id,
            plain(each.description),
        )
        for each in found.listings
    ]
    text = table(rows, "TOPIC", "TAGS", "AUTHOR", "ID", "DESCRIPTION") or "no listed topic found"
    if found.cut:
        text += "\nthere may be more: search for more words, or for one author"
    emit(found, text, as_json=as_json)


@topic.command("readers")
@click.argument("topic")
@remote
def readers(client: Client, topic: str, as_json: bool) -> None:
    """List the readers of a topic, and how many events each has left to read."""
    found = client.readers(topic)
    rows = [
        (each.name, str(each.done), str(each.behind), "yes" if each.connected else "no")
        for each in found
    ]
    text = table(rows, "NAME", "DONE", "BEHIND", "CONNECTED")
    emit(found, text or "no readers", as_json=as_json)


@topic.command("update")
@click.argument("topic")
@click.option("--flush", is_flag=True, help="Retire all events of the topic up to now.")
@click.option(
    "--drop-subtopic", multiple=True, metavar="NAME", help="Sub-topic to remove. May be repeated."
)
@setting_options
@yes_option
@remote
def update(
    client: Client,
    topic: str,
    flush: bool,
    drop_subtopic: tuple[str, ...],
    subtopic: tuple[str, ...],
    yes: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Publish a new version of a topic, as its author or by a recovery key."""
    current = client.topic(topic)
    subtopics = {**current.subtopics, **_named(subtopic)}
    for name in drop_subtopic:
        if name == META or subtopics.pop(name, None) is None:
            raise click.UsageError(f"the topic has no sub-topic {name!r}")
    settings = _changed(current.settings, **chosen)
    changed = subtopics if subtopic or drop_subtopic else None
    if settings == current.settings and changed is None and not flush:
        raise click.UsageError("nothing changes: name a setting that is another now, or --flush")
    if flush:
        confirm(f"All events of {topic} up to now are retired, by every member, for good", yes=yes)
    elif _is_tighter(settings.retention, current.settings.retention):
        confirm(f"Events of {topic} beyond the new retention are retired, for good", yes=yes)
    made = client.update_topic(topic, settings, flush=flush, subtopics=changed)
    emit(made, f"{made.name} has version {made.version} now", as_json=as_json)


def _is_tighter(new: api.RetentionView, old: api.RetentionView) -> bool:
    """Whether a retention keeps less than another by any of its bounds."""
    pairs = ((new.age_s, old.age_s), (new.count, old.count), (new.bytes, old.bytes))
    return any(most is not None and (least is None or most < least) for most, least in pairs)


@topic.command("alias")
@click.argument("alias", required=False)
@click.argument("topic", required=False)
@click.option("--drop", is_flag=True, help="Delete the alias.")
@yes_option
@remote
def alias(
    client: Client, alias: str | None, topic: str | None, drop: bool, yes: bool, as_json: bool
) -> None:
    """Set or delete a local name for a topic, or list all local names."""
    if drop and (alias is None or topic is not None):
        raise click.UsageError("--drop takes the alias alone")
    if alias is not None and topic is None and not drop:
        raise click.UsageError("name a topic, or --drop")
    found = client.aliases()
    if alias is not None and alias in found and found[alias] != topic:
        confirm(f"The alias {alias} stands for the topic {found[alias]} no longer", yes=yes)
    if alias is not None and drop:
        client.drop_alias(alias)
    elif alias is not None and topic is not None:
        client.set_alias(alias, topic)
    found = client.aliases()
    emit(found, table(list(found.items()), "ALIAS", "TOPIC") or "no aliases", as_json=as_json)


@click.command()
@click.argument("topic")
@click.option("--name", help="Delete this reader only.")
@yes_option
@remote
def unsubscribe(client: Client, topic: str, name: str | None, yes: bool, as_json: bool) -> None:
    """Unsubscribe the node, for all its readers, from a topic, or delete one reader.

    A reader that is deleted loses its place. A node that unsubscribes forgets the topic's events.
    """
    if loss := _loss(client, topic, name):
        confirm(loss, yes=yes)
    if name is None:
        client.unsubscribe(topic)
    else:
        client.forget(topic, name)
    emit({"done": True}, "done", as_json=as_json)


def _loss(client: Client, topic: str, name: str | None) -> str:
    """What `unsubscribe` deletes, in words; empty where there is nothing."""
    places = [
        f"{each.name} at {each.done}" for each in client.readers(topic) if name in (None, each.name)
    ]
    lost = [f"the places of its readers ({', '.join(places)})"] if places else []
    if name is None:
        wanted = client.topic(topic).id
        lost += [
            f"its {each.newest} events on this node"
            for each in client.topics()
            if each.id == wanted and each.newest and not each.is_root
        ]
    return f"This deletes, of {topic}: {', '.join(lost)}" if lost else ""
