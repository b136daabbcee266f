"""Configurations: the members that vote, and both lists during a change of members (Raft, 6).

A change of members goes through a **joint** configuration, in which most of the old and most of the
new members must agree, on leaders and on entries alike. So at no moment could the old members
decide without the new ones, and the new ones without the old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Final, NamedTuple

from msgspec import Struct

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import CID_BYTES, PEER_ID_BYTES, Cid, PeerId
from pulsarcast.protocol.fields import Many, StoreId, Unsent
from pulsarcast.protocol.limits import MEMBERS_MAX, STORE_BYTES

_MEMBER_BYTES: Final = PEER_ID_BYTES + STORE_BYTES


class Member(NamedTuple):
    """A sequencer and its store: a sequencer that lost its store is another member."""

    peer: PeerId
    store: StoreId


def peers_of(members: tuple[Member, ...]) -> tuple[PeerId, ...]:
    """The peers of some members, in their order."""
    return tuple(member.peer for member in members)


class Config(Struct, frozen=True):
    """The members that vote, from some entry of the log on."""

    members: Annotated[tuple[Member, ...], Many(MEMBERS_MAX)] = ()
    outgoing: Annotated[tuple[Member, ...], Unsent()] = ()
    """The members that are replaced, while both lists vote."""
    version: Cid | None = None
    """The version of the topic that names the members; None for its first."""

    @property
    def is_joint(self) -> bool:
        """Whether two lists vote."""
        return bool(self.outgoing)

    @property
    def peers(self) -> tuple[PeerId, ...]:
        """All peers that vote, each once."""
        return tuple(dict.fromkeys(member.peer for member in (*self.outgoing, *self.members)))

    def has(self, member: Member) -> bool:
        """Whether a peer has a vote with this store."""
        return member in self.members or member in self.outgoing

    def is_quorum(self, agrees: Callable[[Member], bool]) -> bool:
        """Whether most members agree; in a joint configuration, most of each list."""
        return all(sum(map(agrees, each)) > len(each) // 2 for each in self._lists())

    def of_most(self, number: Callable[[Member], int]) -> int:
        """The number that most members reach; in a joint configuration, most of each list."""
        return min(sorted(map(number, each))[(len(each) - 1) // 2] for each in self._lists())

    def _lists(self) -> Iterable[tuple[Member, ...]]:
        return (self.members, self.outgoing) if self.outgoing else (self.members,)


NO_CONFIG: Final = Config()


def pack_config(config: Config) -> bytes:
    """The body of an entry: members alone; or the count of outgoing ones, a version, and all."""
    members = b"".join(member.peer + member.store for member in config.members)
    if config.version is None and not config.outgoing:
        return members
    outgoing = b"".join(member.peer + member.store for member in config.outgoing)
    version = config.version or bytes(CID_BYTES)
    return bytes([len(config.outgoing)]) + version + outgoing + members


def unpack_config(value: bytes) -> Config:
    """A configuration from the body of an entry; raises RemoteError if it is none."""
    rest = len(value) % _MEMBER_BYTES
    if rest == 0:
        return Config(_unpack_members(value))
    if rest != 1 + CID_BYTES:
        raise RemoteError("a configuration of no whole number of members")
    members = _unpack_members(value[rest:])
    version = value[1:rest]
    going = value[0]
    return Config(members[going:], members[:going], Cid(version) if any(version) else None)


def _unpack_members(value: bytes) -> tuple[Member, ...]:
    parts = (value[at : at + _MEMBER_BYTES] for at in range(0, len(value), _MEMBER_BYTES))
    return tuple(Member(PeerId(each[:PEER_ID_BYTES]), each[PEER_ID_BYTES:]) for each in parts)
