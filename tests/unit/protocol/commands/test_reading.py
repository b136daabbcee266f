"""Reading on its own: the disk is asked before the DHT, and each command is answered once."""

import pytest

from pulsarcast.model.errors import Closed, NotFound
from pulsarcast.model.ids import PeerId, cid_of
from pulsarcast.model.pointers import Named, Resolution, sign_pointer
from pulsarcast.protocol.commands.reading import ReadCommands
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import FetchBlock, ReadHistory, Resolve
from pulsarcast.protocol.store import Block, Events
from tests.support.parts import Core
from tests.support.people import BOB, event_of, topic_of

BLOCK = b"block"
CID = cid_of(BLOCK)


def commands_of(core: Core) -> ReadCommands:
    return ReadCommands(core.context, core.following, core.dht, core.walks, core.names)


def test_a_block_on_the_disk_is_not_looked_for_in_the_dht() -> None:
    core = Core()
    commands_of(core).handle(FetchBlock(7, CID))
    core.load(Block(BLOCK))
    assert core.replies() == [Reply(7, cid=CID, block=BLOCK)]
    assert core.network.finding == []


def test_a_block_that_neither_disk_nor_dht_has_is_refused() -> None:
    core = Core()
    commands_of(core).handle(FetchBlock(7, CID))
    core.load(Block(None))
    assert core.replies() == []
    assert core.network.found(None) == CID
    (reply,) = core.replies()
    assert reply.refusal is not None
    assert reply.refusal.code == NotFound("").refusal.code


def test_a_name_leads_to_the_version_that_its_pointer_names() -> None:
    core = Core()
    commands_of(core).handle(Resolve(7, BOB.peer_id, "news"))
    (then,) = core.network.resolving
    pointer = sign_pointer(BOB, "news", 1, CID, topic=topic_of(BOB).cid)
    then(Named(pointer))
    assert core.replies() == [Reply(7, cid=CID, resolution=Resolution(pointer))]


@pytest.mark.parametrize(
    ("known", "reason"),
    [([BOB.peer_id], "check both, and that peers are connected"), ([], "no peer is connected yet")],
)
def test_a_name_that_is_not_found_is_refused_with_the_reason(
    known: list[PeerId], reason: str
) -> None:
    core = Core()
    core.network.known = known
    commands_of(core).handle(Resolve(7, BOB.peer_id, "news"))
    (then,) = core.network.resolving
    then(None)
    (reply,) = core.replies()
    assert reply.refusal is not None
    assert reply.refusal.message == f"no topic with this author and name was found: {reason}"


def test_history_comes_with_the_place_of_each_event() -> None:
    core, topic = Core(), topic_of(BOB)
    events = [event_of(BOB, topic, number) for number in (1, 2)]
    commands_of(core).handle(ReadHistory(7, topic.cid, 5, 10))
    core.load(Events(((5, events[0]), (9, events[1]))))
    assert core.replies() == [Reply(7, cid=topic.cid, events=tuple(events), places=(5, 9))]


def test_a_node_that_stops_refuses_commands() -> None:
    core = Core()
    core.following.is_stopping = True
    commands_of(core).handle(FetchBlock(7, CID))
    assert core.replies() == [Reply(7, Closed("the node is stopping").refusal)]
    assert core.turn.effects == []
