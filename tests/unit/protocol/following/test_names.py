"""The names of one node on its own: how often they are looked up."""

from pulsarcast.model.ids import cid_of
from pulsarcast.model.pointers import Named, sign_pointer
from tests.support.parts import Core
from tests.support.people import ALICE

TOPIC = cid_of(b"a topic")


def test_rounds_of_renewal_do_not_queue_up_in_a_slow_network() -> None:
    core = Core()
    for name in ("one", "two", "three"):
        core.names.learn(Named(sign_pointer(ALICE, name, 1, TOPIC, topic=TOPIC)))
    for _ in range(10):
        core.names.renew()
    lookups = 0
    while core.network.resolving:
        core.network.resolving.pop(0)(None)
        lookups += 1
        core.fire()
    assert lookups == 3, "each name once"
    core.names.renew()
    assert core.network.resolving, "the next round begins when the one before has ended"
