"""Shape queries: a node believes a tree's shape of homes that it asked, and of no other peer."""

import pytest

from pulsarcast.model.ids import Cid
from pulsarcast.protocol.content.homes import NEW_S
from pulsarcast.protocol.content.messages import (
    COUNTED_MAX,
    AskShape,
    PlaceState,
    Purpose,
    TreeHint,
    TreeShape,
)
from pulsarcast.protocol.content.place import PlaceId
from pulsarcast.protocol.content.routing import HOPS_MAX
from pulsarcast.protocol.content.shape import SPLITS_MAX, Shape
from pulsarcast.protocol.content.shape_queries import ASK_AGAIN_S, ASKED_MAX, ShapeQueries
from pulsarcast.protocol.content.space import CUT_OFFS, ROOT, Line, Widths
from pulsarcast.protocol.content.trees import TREES_MAX
from tests.support.people import CAROL
from tests.unit.protocol.content.parts import Parts, closest_to
from tests.unit.protocol.content.stage import AT, TOPIC, Stage, held_of

DEEP = 0b1_0110_0101_1010


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def shape(stage: Stage) -> Shape:
    """What the node knows of the tree."""
    return stage.content.trees.shape(TOPIC.topic, "price")


def splits(*nodes: int, below: int = ROOT) -> bytes:
    made = Shape()
    for node in nodes:
        made.split(node)
    return made.to_bytes(below)


def hint(about: int, at: int = 0, hops: int = 0) -> TreeHint:
    return TreeHint(TOPIC.topic, "price", about, at, hops)


def answer(question: AskShape, told: bytes) -> TreeShape:
    return TreeShape(TOPIC.topic, "price", question.at, told, question.token)


# What comes unasked.


def test_a_shape_that_nobody_asked_for_is_not_believed(stage: Stage, shape: Shape) -> None:
    stage.meet(*stage.closer, *stage.farther)
    told = TreeShape(TOPIC.topic, "price", ROOT, splits(1, 2, 3), 0)
    stage.content.receive(stage.farther[0], told)
    assert not shape.is_known
    stage.content.receive(stage.farther[0], hint(DEEP))
    ((_, question),) = stage.told(AskShape)
    stage.content.receive(stage.farther[0], told)
    other = TreeShape(TOPIC.topic, "price", ROOT, splits(1, 2, 3), question.token + 1)
    stage.content.receive(stage.farther[0], other)
    assert not shape.is_known
    assert len(shape) == 0


def test_a_node_that_somebody_made_up_is_asked_for_from_the_root_downwards(
    stage: Stage, shape: Shape
) -> None:
    """Its own home would say that it is there: whoever made it up chose it for that."""
    stage.meet(*stage.closer, *stage.farther)
    stage.content.receive(stage.farther[0], hint(DEEP))
    ((_, question),) = stage.told(AskShape)
    assert question.at == ROOT
    stage.content.receive(stage.farther[1], answer(question, splits(1, 0b10)))
    assert (shape.is_split(0b10), shape.is_split(DEEP)) == (True, False)
    stage.pass_time(2 * ASK_AGAIN_S)
    stage.content.receive(stage.farther[0], hint(DEEP))
    ((_, question),) = stage.told(AskShape)
    assert question.at == DEEP >> 10, "the leaf on the way to it"
    stage.content.receive(stage.farther[1], answer(question, splits()))
    assert not shape.is_split(question.at)


def test_a_leaf_with_a_child_that_somebody_made_up_asks_its_parent(
    stage: Stage, shape: Shape
) -> None:
    stage.meet(*stage.farther)
    stage.content.receive(stage.farther[0], hint(2 * AT, AT))
    ((_, question),) = stage.told(AskShape)
    assert question.at == AT >> 1
    stage.content.receive(stage.farther[1], answer(question, splits(AT >> 1, below=AT >> 1)))
    assert not stage.place.is_split
    assert not shape.is_split(AT)


@pytest.mark.parametrize("purpose", [Purpose.REPLICA, Purpose.HAND_OVER])
def test_a_stranger_to_the_key_of_a_leaf_cannot_split_it(
    stage: Stage, shape: Shape, purpose: Purpose
) -> None:
    stage.meet(*stage.farther)
    stage.node.turn.now = NEW_S
    lie = PlaceState(
        TOPIC.topic, "price", AT, purpose, True, (), splits(AT, 2 * AT, below=AT), home=None
    )
    stage.content.receive(stage.farther[-1], lie)
    assert [stage.place.is_split, len(shape)] == [False, 0]
    stage.content.receive(stage.farther[0], lie)
    assert stage.place.is_split, "a neighbour may have been its home"
    assert shape.is_split(2 * AT)
    assert not shape.is_known, "and says nothing of what is above"


def test_a_neighbour_that_passes_on_what_a_stranger_sends_does_not_vouch_for_it(
    stage: Stage, shape: Shape
) -> None:
    stage.meet(*stage.farther)
    lie = PlaceState(TOPIC.topic, "price", AT, Purpose.TRANSFER, True, (), splits(AT, below=AT))
    stage.content.receive(stage.farther[0], lie)
    assert [stage.place.is_split, len(shape)] == [False, 0]


def test_who_saw_a_question_cannot_tell_the_next_ones_token(stage: Stage, shape: Shape) -> None:
    stage.meet(*stage.closer, *stage.farther)
    queries = stage.content.homes.shape_hints.queries
    queries.ask(TOPIC.topic, "price", DEEP)
    ((_, seen),) = stage.told(AskShape)
    stage.content.receive(stage.farther[0], hint(ROOT))
    for token in range(seen.token + 1, seen.token + 100):
        lie = TreeShape(TOPIC.topic, "price", ROOT, splits(1, 2, 3), token)
        stage.content.receive(stage.farther[0], lie)
    assert len(shape) == 0


def test_a_home_does_not_ask_itself_about_its_own_node(stage: Stage, shape: Shape) -> None:
    """Its answer would split the node, and the homes of its parts would wait for that answer."""
    shape.split(AT)
    stage.content.homes.capacity = 1
    for sid, low in enumerate((0.0, 0.1, 0.2, 0.3, 0.4)):
        stage.put(stage.place, held_of(CAROL, sid=sid, low=low))
    stage.content.receive(stage.farther[0], hint(AT, AT))
    stage.content.receive(stage.farther[0], hint(ROOT, ROOT))
    assert len(stage.content.homes.shape_hints.queries) == 0


# What is asked for.


def test_a_leaf_that_its_parent_knows_to_have_split_is_none(stage: Stage) -> None:
    stage.meet(*stage.farther)
    stage.content.receive(stage.farther[0], hint(2 * AT, AT))
    ((_, question),) = stage.told(AskShape)
    told = splits(AT >> 1, AT, below=AT >> 1)
    stage.content.receive(stage.farther[1], answer(question, told))
    assert stage.place.is_split


def test_a_node_that_was_halved_in_passing_asks_who_halved_it(stage: Stage, shape: Shape) -> None:
    stage.meet(*stage.farther)
    stage.content.receive(stage.farther[0], hint(AT >> 2, AT))
    ((_, question),) = stage.told(AskShape)
    assert question.at == AT >> 2
    told = splits(AT >> 2, AT >> 1, AT, below=AT >> 2)
    stage.content.receive(stage.farther[1], answer(question, told))
    assert stage.place.is_split
    assert shape.is_split(AT)


@pytest.mark.parametrize("top", [ROOT, 0b11])
def test_a_top_node_whose_home_lost_all_it_knew_asks_its_child(stage: Stage, top: int) -> None:
    place = stage.hold(top)
    stage.content.homes.shape_hints.hear(hint(2 * top, top))
    assert not place.is_split, "nobody holds such a child"
    stage.pass_time(2 * ASK_AGAIN_S)
    stage.hold(2 * top)
    stage.content.homes.shape_hints.hear(hint(2 * top, top))
    assert place.is_split


def test_a_home_answers_of_what_it_holds_whoever_asks(stage: Stage, shape: Shape) -> None:
    asker = stage.farther[3]
    question = AskShape(TOPIC.topic, "price", AT, 77, asker, 2)
    stage.content.receive(stage.farther[0], question)
    leaf = Shape().to_bytes()
    told = TreeShape(
        TOPIC.topic, "price", AT, leaf, 77, widths=b"\1" + bytes(len(CUT_OFFS) - 1), parts=1
    )
    assert stage.told(TreeShape) == [(asker, told)]
    shape.split(AT)
    stage.content.receive(stage.farther[0], question)
    ((_, told),) = stage.told(TreeShape)
    assert told.shape == leaf, "what others say of it is not what it is"
    stage.place.is_split = True
    stage.content.receive(stage.farther[0], AskShape(TOPIC.topic, "price", AT, 78))
    ((to, told),) = stage.told(TreeShape)
    assert (to, told.shape) == (stage.farther[0], shape.to_bytes(AT))


def test_a_home_that_forgot_the_tree_still_says_that_its_node_has_split(stage: Stage) -> None:
    stage.place.is_split = True
    for number in range(TREES_MAX):
        stage.content.trees.shape(TOPIC.topic, f"price {number}")
    stage.content.receive(stage.farther[0], AskShape(TOPIC.topic, "price", AT, 7))
    ((_, told),) = stage.told(TreeShape)
    assert told.shape == splits(AT, below=AT)


def test_a_question_travels_to_the_home_and_not_for_ever(stage: Stage) -> None:
    stage.place.is_owner = False
    stage.meet(*stage.closer)
    stage.content.receive(stage.farther[0], AskShape(TOPIC.topic, "price", AT, 7))
    passed_on = AskShape(TOPIC.topic, "price", AT, 7, stage.farther[0], 1)
    assert stage.told(AskShape) == [(stage.closer[0], passed_on)]
    too_far = AskShape(TOPIC.topic, "price", AT, 7, stage.farther[0], HOPS_MAX + 1)
    stage.content.receive(stage.farther[0], too_far)
    stage.content.receive(stage.farther[0], hint(AT >> 1, AT, HOPS_MAX + 1))
    assert stage.told(object) == []


def test_the_same_is_asked_again_where_there_was_a_new_reason(stage: Stage) -> None:
    stage.meet(*stage.farther)
    hints = stage.content.homes.shape_hints
    for _ in range(3):
        stage.content.receive(stage.farther[0], hint(2 * AT, AT))
    assert len(stage.told(AskShape)) == 1
    stage.pass_time(2 * ASK_AGAIN_S)
    assert len(stage.told(AskShape)) == 1
    stage.pass_time(2 * ASK_AGAIN_S)
    assert stage.told(AskShape) == []
    assert len(hints.queries) == 0


def test_an_answer_counts_once(stage: Stage, shape: Shape) -> None:
    stage.meet(*stage.closer, *stage.farther)
    stage.content.receive(stage.farther[0], hint(DEEP))
    ((_, question),) = stage.told(AskShape)
    stage.content.receive(stage.farther[1], answer(question, splits(1)))
    stage.content.receive(stage.farther[1], answer(question, splits(1, 2, 3)))
    assert len(shape) == 1


def test_questions_and_what_is_learnt_without_a_way_from_the_root_are_bounded(
    stage: Stage, shape: Shape
) -> None:
    stage.meet(*stage.closer, *stage.farther)
    queries = stage.content.homes.shape_hints.queries
    for node in range(2 * ASKED_MAX):
        queries.ask(TOPIC.topic, "price", 1024 + node)
    assert len(stage.told(AskShape)) <= len(queries) == ASKED_MAX
    for node in range(SPLITS_MAX // 2 + 1):
        shape.split((1 << 20) + node)
    stage.pass_time(2 * ASK_AGAIN_S)
    for about, is_taken in ((DEEP, False), (ROOT, True)):
        queries.ask(TOPIC.topic, "price", about)
        ((_, question),) = stage.told(AskShape)
        stage.content.receive(stage.farther[1], answer(question, splits(about, below=about)))
        assert shape.is_split(about) is is_taken


class Learner:
    """Plays those who want to know: remembers of which homes answers came."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, int]] = []
        self.lines = 0
        self.samples: list[Widths] = []

    def learnt(self, where: PlaceId, asked: int) -> None:
        self.heard.append((where[2], asked))

    def heard_line(self, topic: Cid, attribute: str) -> None:
        self.lines += 1

    def sampled(self, topic: Cid, attribute: str, widths: Widths) -> None:
        self.samples.append(widths)


def test_a_shape_is_believed_once_and_only_with_the_token_of_the_question() -> None:
    home = closest_to(ROOT)
    parts, learner = Parts(home), Learner()
    queries = ShapeQueries(parts.context, parts.routing, parts.trees, parts.places, learner)
    queries.ask(TOPIC.topic, "price", ROOT, on_behalf=AT)
    ((who, question),) = parts.core.sent()
    assert who == home
    assert isinstance(question, AskShape)
    known = parts.trees.shape(TOPIC.topic, "price")
    queries.answered(TreeShape(TOPIC.topic, "price", ROOT, splits(ROOT), question.token + 1))
    assert not known.is_split(ROOT)
    for _ in range(2):
        queries.answered(TreeShape(TOPIC.topic, "price", ROOT, splits(ROOT), question.token))
    assert known.is_split(ROOT)
    assert learner.heard == [(AT, ROOT)]
    assert learner.lines == 1


def test_the_line_is_as_old_as_the_question_and_only_the_roots_home_tells_it() -> None:
    parts, learner = Parts(closest_to(ROOT), closest_to(2)), Learner()
    queries = ShapeQueries(parts.context, parts.routing, parts.trees, parts.places, learner)
    known = parts.trees.shape(TOPIC.topic, "price")
    asked_s = parts.turn.now
    for at, line in ((2, Line()), (ROOT, Line(3, 2))):
        queries.ask(TOPIC.topic, "price", at)
        question = parts.core.sent()[-1][1]
        assert isinstance(question, AskShape)
        parts.turn.now += 2.0
        leaf = Shape().to_bytes()
        queries.answered(
            TreeShape(TOPIC.topic, "price", at, leaf, question.token, 3, 2, b"\1\xff", 1)
        )
        assert known.line == line
    assert known.line_age_s(parts.turn.now) == parts.turn.now - asked_s - 2.0
    assert learner.samples == [Widths((1, COUNTED_MAX), 1)] * 2, "no leaf outvotes all others"


def test_a_new_reason_asks_the_same_home_again_after_a_while() -> None:
    parts, learner = Parts(closest_to(ROOT)), Learner()
    queries = ShapeQueries(parts.context, parts.routing, parts.trees, parts.places, learner)
    queries.ask(TOPIC.topic, "price", ROOT)
    assert len(parts.core.sent()) == 1
    queries.ask(TOPIC.topic, "price", ROOT, on_behalf=AT)
    assert parts.core.sent() == []
    parts.core.fire()
    assert len(parts.core.sent()) == 1
    parts.core.fire()
    assert (len(queries), parts.core.sent()) == (0, [])
