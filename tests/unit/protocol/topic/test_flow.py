"""Flow control: credit that is held back while a disk lags, and given once it has caught up."""

import pytest

from pulsarcast.protocol.messages import Credit
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.topic import flow
from tests.support.lab import Lab

AUTHOR, MEMBER = 0, 1
WINDOW = 4


def test_whose_disk_lags_gives_no_credit_until_it_has_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab(4, parameters=Parameters(window=WINDOW))
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER], topic)
    monkeypatch.setattr(flow, "UNSYNCED_MAX", 0)  # it never keeps up
    events = [lab.publish(AUTHOR, topic, b"%d" % number) for number in range(WINDOW)]
    lab.run(1.0)
    assert not lab.messages(Credit, MEMBER)
    monkeypatch.setattr(flow, "UNSYNCED_MAX", 4096)
    # There is no credit left for this one: it comes another way, and its sync makes amends.
    events.append(lab.publish(AUTHOR, topic, b"one more", settle_s=30.0))
    given = lab.messages(Credit, MEMBER)
    assert sum(credit.count for credit in given if credit.topic == topic) == WINDOW
    assert lab.delivered(MEMBER, topic) == events
