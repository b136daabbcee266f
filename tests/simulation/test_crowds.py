"""Many join a topic at once: no peer is asked by a share of them that grows with their number."""

from collections import Counter

from pulsarcast.protocol.inputs import Subscribe
from pulsarcast.protocol.messages import FindBlock, Join
from tests.support.lab import Lab

WITHIN_S = 1.0


def crowd(members: int) -> tuple[float, float]:
    """The share of all joins that ask the root, and of all lookups that ask one peer."""
    lab = Lab(members + 1, settle_s=100.0)
    author = members // 2
    topic = lab.create(author)
    lab.run(30.0)
    lab.said.clear()
    replies = []
    for index in range(members + 1):
        if index == author:
            continue
        replies.append(lab.start(index, lambda call: Subscribe(call, topic)))
        lab.run(WITHIN_S / members)
    lab.run(30.0)
    assert all(reply and reply[0].refusal is None for reply in replies)
    roots = [index for index in range(members + 1) if lab.view(index, topic).root]
    assert roots == [author], "nobody in the crowd founded a second tree"
    asked = {
        kind: Counter(said.receiver for said in lab.said if isinstance(said.message, kind))
        for kind in (Join, FindBlock)
    }
    # A topic and its meta topic: two joins, and two lookups.
    joins, lookups = (max(asked[kind].values()) / (2 * members) for kind in (Join, FindBlock))
    return joins, lookups


def test_in_a_larger_crowd_a_smaller_share_asks_one_peer() -> None:
    small, large = crowd(60), crowd(400)
    assert large[0] < 0.7 * small[0], "joins that ask the root"
    assert large[1] < 0.8, "lookups that ask one peer"
