"""Events and versions among sequencers alone: as little as the machine and its checkers need."""

from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.protocol.sequencing.log import Place


def version_cid(number: int) -> Cid:
    """A version of the topic, by its number."""
    return cid_of(b"version %d" % number)


def make_event(request: bytes, place: Place, version: int) -> bytes:
    """An event: its request, its place, its version, and a link to the one before."""
    link = (place.parent or b"").hex().encode()
    return b"%s/%d/%d/%d/%s" % (request, place.term, place.position, version, link)


def version_of(block: bytes) -> int:
    """The version that an event names: the first one that has its list of sequencers."""
    return int(block.split(b"/")[3])


def handover_of(block: bytes) -> int | None:
    """The version whose sequencers an event leaves the order to, if it does."""
    return int(block.split(b" ")[1]) if block.startswith(b"handover ") else None
