"""A refusal's type and its code are one to one, and survive the way through a value."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from pulsarcast.model.errors import (
    REFUSALS,
    LocalError,
    NotFound,
    Refusal,
    Rejection,
    RemoteError,
    TooLarge,
    caller_to_blame,
)


def subclasses(kind: type[LocalError]) -> Iterator[type[LocalError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from subclasses(each)


def test_every_type_with_a_code_of_its_own_is_in_the_table() -> None:
    own = [each for each in subclasses(LocalError) if "code" in vars(each)]
    assert {each.code: each for each in own} == REFUSALS
    assert len(own) == len(REFUSALS), "no code has two types"


@pytest.mark.parametrize("kind", REFUSALS.values(), ids=lambda kind: kind.code)
def test_an_error_is_the_same_behind_a_value_and_a_pickle(kind: type[LocalError]) -> None:
    error = kind("why not")
    for again in (error.refusal.error(), pickle.loads(pickle.dumps(error))):
        assert (type(again), str(again)) == (kind, "why not")


def test_a_code_of_a_later_version_is_a_refusal_all_the_same() -> None:
    assert type(Refusal("of a later version", "no").error()) is LocalError


def test_what_is_too_large_for_a_peer_is_too_large_for_a_caller() -> None:
    with pytest.raises(TooLarge, match="1 MiB"), caller_to_blame():
        raise RemoteError("more than 1 MiB", code=Rejection.OVERSIZE)
    with pytest.raises(LocalError) as caught, caller_to_blame():
        raise RemoteError("nonsense")
    assert type(caught.value) is LocalError


def test_whoever_asks_for_anything_that_is_not_there_can_catch_it_with_one_type() -> None:
    missing = [each for code, each in REFUSALS.items() if code.endswith("not_found")]
    assert all(issubclass(each, NotFound) for each in missing)
