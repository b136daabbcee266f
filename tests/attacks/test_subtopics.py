"""Attacks by an author on those who subscribe to its topic with all below it."""

import pytest

from pulsarcast.model.ids import Cid
from pulsarcast.protocol.following import below
from pulsarcast.protocol.inputs import Unsubscribe
from pulsarcast.protocol.messages import FindBlock
from tests.support.lab import Lab
from tests.support.people import unordered

AUTHOR, READER = 0, 5


def nowhere(number: int) -> Cid:
    return Cid(bytes.fromhex("01711220") + number.to_bytes(32, "big"))


def test_links_to_topics_that_do_not_exist_cost_a_bounded_number_of_lookups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(below, "BELOW_MAX", 20)
    monkeypatch.setattr(below, "AT_ONCE", 4)
    lab = Lab(6)
    links = {f"{number}": nowhere(number) for number in range(100)}
    top = lab.create(AUTHOR, name="top", subtopics=links)

    def looked_up() -> list[Cid]:
        asked = [each.message for each in lab.said if each.sender == READER]
        wanted = [each.cid for each in asked if isinstance(each, FindBlock)]
        return [cid for cid in wanted if cid in set(links.values())]

    lab.subscribe([READER], top, below=True)
    lab.run(20.0)
    asked = looked_up()
    assert len(set(asked)) == 20
    view = lab.world.node(READER).following.below.view(top)
    assert (view.followed, view.joining, view.left_out_count) == (0, 0, 100)
    per_lookup = len(asked) / 20
    lab.run(10 * below.RETRY_S)
    # A quarter either way is jitter; the rest is the pace: so many at a time, and no more.
    assert len(looked_up()) - len(asked) <= (10 / 0.75 + 1) * 4 * per_lookup
    assert len(set(looked_up())) == 20
    reply = lab.ask(READER, lambda call: Unsubscribe(call, top))
    assert reply.refusal is None
    lab.run(2.0)
    left = len(looked_up())
    lab.run(3 * below.RETRY_S)
    assert len(looked_up()) == left, "a topic that was left is not looked for"


@pytest.mark.slow
def test_versions_without_end_cost_one_walk_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    walks: list[float] = []
    real = below.Below._tree

    def counted(self: below.Below, top: Cid) -> below._Tree:
        if self.turn.me == lab.peer(READER):
            walks.append(lab.world.now)
        return real(self, top)

    monkeypatch.setattr(below.Below, "_tree", counted)
    lab = Lab(6)
    leaf = lab.create(AUTHOR, name="leaf")
    top = lab.create(AUTHOR, name="top", subtopics={"leaf": leaf})
    lab.subscribe([READER], top, below=True)
    lab.run(5.0)
    began_s, before = lab.world.now, len(walks)
    for number in range(100):
        lab.update(AUTHOR, top, unordered(), subtopics={"leaf": leaf} if number % 2 else {})
    assert len(walks) - before <= (lab.world.now - began_s) / below.WALK_S + 1


@pytest.mark.slow
def test_topics_that_share_all_their_links_are_walked_in_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(below, "LINKS_MAX", 30)
    lab = Lab(6)
    leaves = {f"{number}": lab.create(AUTHOR, name=f"{number}") for number in range(10)}
    middles = {
        f"{number}": lab.create(AUTHOR, name=f"m{number}", subtopics=leaves) for number in range(5)
    }
    top = lab.create(AUTHOR, name="top", subtopics=middles)
    lab.subscribe([READER], top, below=True)
    lab.run(20.0)
    view = lab.world.node(READER).following.below.view(top)
    assert view.followed == 15
    assert view.left_out_count


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_chain_of_a_thousand_topics_ends_after_sixteen_links() -> None:
    lab = Lab(6)
    chain = [lab.create(AUTHOR, name="end")]
    for number in range(1000):
        chain.insert(0, lab.create(AUTHOR, name=f"{number}", subtopics={"next": chain[0]}))
    lab.subscribe([READER], chain[0], below=True)
    lab.run(60.0)
    node = lab.world.node(READER)
    followed = {cid for cid, topic in node.topics.items() if topic.subscribed}
    assert followed == set(chain[: below.DEPTH_MAX + 1])
    view = node.following.below.view(chain[0])
    assert (view.followed, view.left_out) == (16, {chain[17]: "too deep"})
