"""Busy over HTTP: the answer says when to come back, and the client comes back then."""

import pytest

from pulsarcast.client.calls import problem as read_problem
from pulsarcast.client.errors import after_s_of, is_passing
from pulsarcast.client.following import Backoff
from pulsarcast.daemon.answers import problem
from pulsarcast.model.errors import Busy, NotFound


@pytest.mark.parametrize(("after_s", "header"), [(0.0, "1"), (0.02, "1"), (2.5, "3")])
def test_busy_is_429_with_a_time_to_come_back(after_s: float, header: str) -> None:
    answer = problem(Busy("too fast", after_s=after_s))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, header)
    error = read_problem(429, bytes(answer.body))
    assert isinstance(error, Busy)
    assert (after_s_of(error), is_passing(error)) == (after_s, True)


def test_other_refusals_say_no_time() -> None:
    answer = problem(NotFound("nowhere"))
    assert "retry-after" not in answer.headers
    assert b"after_s" not in bytes(answer.body)


def test_a_client_does_not_come_back_sooner_than_it_is_told() -> None:
    backoff = Backoff(10.0)
    assert backoff.failed(0.0, 2.5) == 2.5
    later_s = backoff.failed(2.5)
    assert later_s is not None
    assert later_s < 2.5, "and only once"
