"""A topic's life on one node is the table of `LIFE`, and nothing else."""

import itertools
import re

import pytest

from pulsarcast.protocol.topic import life
from pulsarcast.protocol.topic.life import LIFE, WAITING, Life, Stage, Step

CELLS = list(itertools.product(Stage, Step))


def shown() -> dict[tuple[Stage, Step], str]:
    """The cells of the table in the module's docstring."""
    assert life.__doc__ is not None
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in life.__doc__.splitlines()
        if line.startswith("|") and "---" not in line
    ]
    steps = [Step[name] for name in rows[0][1:]]
    return {
        (Stage[row[0]], step): cell
        for row in rows[1:]
        for step, cell in zip(steps, row[1:], strict=True)
    }


@pytest.mark.parametrize(("stage", "step"), CELLS)
def test_a_step_leads_to_the_stage_that_the_table_names_or_cannot_happen(
    stage: Stage, step: Step
) -> None:
    one = Life(stage)
    said = shown()[stage, step]
    if re.fullmatch("[A-Z]+", said):
        one.step(step)
        assert one.stage is Stage[said]
    else:
        assert said == (
            "waits" if stage in WAITING and step in (Step.FOLLOW, Step.UNFOLLOW) else "–"
        )
        with pytest.raises(AssertionError):
            one.step(step)
        assert one.stage is stage


def test_the_table_shows_every_cell() -> None:
    assert set(shown()) == set(CELLS)
    assert {cell for cell, said in shown().items() if re.fullmatch("[A-Z]+", said)} == set(LIFE)


@pytest.mark.parametrize("stage", Stage)
def test_a_topic_is_followed_from_the_join_until_it_is_left(stage: Stage) -> None:
    assert Life(stage).is_followed == (stage in (Stage.JOINING, Stage.MEMBER))
    assert Life(stage).is_waiting == (stage in (Stage.LEAVING, Stage.FORGETTING))


def test_only_a_topic_that_nobody_follows_is_forgotten_without_being_left() -> None:
    one = Life()
    one.forget()
    assert one.stage is Stage.FORGETTING
    with pytest.raises(AssertionError):
        one.forget()


def is_over(one: Life) -> bool:
    return one.is_over


def test_a_life_is_over_once_the_node_is_away_and_nobody_waits() -> None:
    one = Life()
    assert is_over(one)
    one.on_ready = (lambda: None,)
    assert not is_over(one)
    assert len(one.take_on_ready()) == 1
    assert is_over(one)
    one.step(Step.FOLLOW)
    assert not is_over(one)
