"""A contestant without a network: it delivers to itself, and can be told to fall."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.testbed.child import Plan
from pulsarcast.testbed.contestants.contestants import Receipt, Seat, Settings, Traffic
from pulsarcast.testbed.fleet import Fleet
from pulsarcast.testbed.ledger import Ledger
from pulsarcast.testbed.scenarios.compare import number_of

FALL = "fall"
REFUSE = "refuse"


class StubNode:
    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.peer = PeerId(b"peer-%d" % seat.index)
        # A first life listens where the kernel says, which is here: its index.
        port = seat.index if seat.listen.endswith("/0") else int(seat.listen.rpartition("/")[2])
        self.addresses: Sequence[str] = [f"/ip4/127.0.0.1/tcp/{port}/p2p/{seat.index}"]
        self.told = 0
        self.halted: str | None = None

    async def join(self, addresses: Sequence[str]) -> None:
        self.told = len(addresses)

    async def create_topic(
        self,
        name: str,
        order: str,
        dissemination: str = "tree",
        sequencers: Sequence[PeerId] = (),
    ) -> Cid:
        if name == FALL:
            os.abort()
        if name == REFUSE:
            raise LocalError("not here")
        return cid_of(name.encode())

    def term_led(self, topic: Cid) -> int | None:
        return None

    async def subscribe(self, topic: Cid) -> None:
        pass

    async def publish(self, topic: Cid, payload: bytes, *, injection: str, ack: str) -> Receipt:
        self._seat.deliver(payload)
        return Receipt(cid_of(payload), 0)

    def traffic(self) -> Traffic:
        return Traffic(self._seat.life, self.told)


@asynccontextmanager
async def open_stub(seat: Seat) -> AsyncIterator[StubNode]:
    yield StubNode(seat)


def stub_fleet(home: Path, *, size: int = 3, ledger: Ledger | None = None) -> Fleet:
    plan = Plan(
        opener=open_stub,
        size=size,
        settings=Settings(),
        ledger=ledger or Ledger(nodes=size, events=10),
        number_of=number_of,
    )
    return Fleet(plan, home)


def is_running(pid: int) -> bool:
    """Whether a process runs; one that ended and was not asked for yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
