"""Candidates: whom we try, and whom we leave alone for a while."""

from random import Random

import pytest

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dissemination.candidates import Candidates
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, BOB, peer

RETRY_S = Parameters().contact_retry_s


@pytest.mark.parametrize(("waited_s", "is_asked"), [(RETRY_S, False), (RETRY_S + 0.1, True)])
def test_one_that_was_no_member_is_asked_again_once_it_is_named_after_a_while(
    waited_s: float, is_asked: bool
) -> None:
    asked: list[PeerId] = []
    candidates = Candidates(
        Context(Turn(BOB, Random(1)), Parameters()),
        wanted=lambda _: True,
        ask=asked.append,
        idle=lambda: None,
    )
    candidates.open()
    candidates.hear_of([peer("carol")], ALICE.peer_id)
    candidates.is_none(peer("carol"))
    candidates.turn.now += waited_s
    candidates.hear_of([peer("carol")], ALICE.peer_id)
    assert asked == [peer("carol")] * (1 + is_asked)
