"""Hot blocks: looked up once many ask for them, and handed out for a while."""

from collections.abc import Callable
from random import Random

from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.hot_blocks import ASKED_MAX, HOT, KEPT_BYTES_MAX, KEPT_S, HotBlocks
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE

BLOCK = b"a block"
CID = cid_of(BLOCK)


class Dht:
    """Plays the DHT: its lookups end when a test says so."""

    def __init__(self) -> None:
        self.turn = Turn(ALICE, Random(1))
        self.hot = HotBlocks(Context(self.turn, Parameters()), self)
        self.lookups: list[tuple[Cid, Callable[[bytes | None], None]]] = []

    def find_block(self, cid: Cid, then: Callable[[bytes | None], None]) -> None:
        self.lookups.append((cid, then))

    def heat(self, cid: Cid = CID) -> None:
        """Ask until it is looked up."""
        for _ in range(HOT):
            assert self.hot.find(cid) is None

    def finds(self, block: bytes | None) -> None:
        """The only lookup ends."""
        ((_, then),) = self.lookups
        self.lookups.clear()
        then(block)


def test_a_block_that_is_asked_for_again_and_again_is_looked_up_once() -> None:
    dht = Dht()
    dht.heat()
    dht.heat()
    assert [cid for cid, _ in dht.lookups] == [CID]
    dht.finds(BLOCK)
    assert dht.hot.find(CID) == BLOCK
    assert not dht.lookups


def test_a_block_that_few_ask_for_is_not_looked_up() -> None:
    dht = Dht()
    for number in range(2 * ASKED_MAX):
        dht.hot.find(cid_of(b"%d" % number))
    assert not dht.lookups
    assert len(dht.hot) == ASKED_MAX


def test_a_block_that_nobody_has_is_looked_up_no_more_often_than_asked() -> None:
    dht = Dht()
    for _ in range(5):
        dht.heat()
        dht.finds(None)
    assert dht.hot.find(CID) is None


def test_strangers_cannot_make_the_node_look_for_more_than_one_at_a_time() -> None:
    dht = Dht()
    for number in range(100):
        dht.heat(cid_of(b"%d" % number))
    assert len(dht.lookups) == 1


def test_a_block_is_handed_out_for_a_while() -> None:
    dht = Dht()
    dht.heat()
    dht.finds(BLOCK)
    dht.turn.now += KEPT_S
    assert dht.hot.find(CID) is None


def test_what_is_kept_is_bounded_in_bytes() -> None:
    dht = Dht()
    large = [bytes([number]) * (KEPT_BYTES_MAX // 3) for number in range(5)]
    for block in large:
        dht.heat(cid_of(block))
        dht.finds(block)
    kept = [block for block in large if dht.hot.find(cid_of(block)) == block]
    assert kept == large[2:]
