"""The code of texts keeps their order, tells apart what follows a shared prefix, and is bounded."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.filters.domains import Domain
from pulsarcast.protocol.content.text_code import BYTES_MAX, place_of

ANY = Domain("name", "str", "")
SENSORS = Domain("name", "str", "sensor-0000", "sensor-9999")
TEXTS = st.one_of(st.text(max_size=20), st.text("abzAZ09-_ é\ud7ff\ue000\U0001f600", max_size=9))


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_places_are_in_the_order_in_which_filters_compare(
    one: str, other: str, first: str, last: str
) -> None:
    first, last = min(first, last), max(first, last)
    for domain in (ANY, SENSORS, Domain("name", "str", first, last), Domain("n", "str", first)):
        low, high = sorted((one, other))
        assert 0.0 <= place_of(domain, low) <= place_of(domain, high) <= 1.0


def test_order_is_by_code_point_and_not_by_utf_16_unit() -> None:
    assert place_of(ANY, "\uffff") < place_of(ANY, "\U00010000")
    assert place_of(ANY, "Z") < place_of(ANY, "a") < place_of(ANY, "é")


def test_what_follows_a_prefix_that_the_bounds_share_can_be_told_apart() -> None:
    texts = [f"sensor-{number:04}" for number in range(0, 10_000, 1000)]
    apart = [b - a for a, b in pairwise(place_of(SENSORS, text) for text in texts)]
    assert min(apart) > 0.05
    unbounded = [b - a for a, b in pairwise(place_of(ANY, text) for text in texts)]
    assert max(unbounded) < 1e-9, "without bounds all of them lie in one cell"


def test_names_that_differ_in_their_first_letters_are_far_apart_without_bounds() -> None:
    places = [place_of(ANY, text) for text in ("ask", "bid", "trade")]
    assert all(later - earlier > 0.01 for earlier, later in pairwise(places))


def test_other_scripts_than_latin_are_told_apart() -> None:
    places = [place_of(ANY, text) for text in ("Анна", "Борис", "Яна")]
    assert all(later - earlier > 1e-5 for earlier, later in pairwise(places))
    cyrillic = Domain("name", "str", "\u0410", "\u044f")
    places = [place_of(cyrillic, text) for text in ("Анна", "Борис", "Яна")]
    assert all(later - earlier > 0.01 for earlier, later in pairwise(places))


def test_texts_that_differ_late_share_a_place() -> None:
    assert place_of(ANY, "x" * BYTES_MAX + "a") == place_of(ANY, "x" * BYTES_MAX + "b")
    assert place_of(ANY, "x" * 1_000_000) < 1.0


def test_values_beyond_the_bounds_count_as_the_ends() -> None:
    assert place_of(SENSORS, "") == place_of(SENSORS, "sensor-0") == 0.0
    assert place_of(SENSORS, "sensor-99990") == place_of(SENSORS, "zebra") == 1.0
    assert place_of(SENSORS, None) == place_of(ANY, None) == 1.0


def test_a_domain_of_one_text_has_one_place() -> None:
    one = Domain("name", "str", "x", "x")
    assert place_of(one, "x") == 1.0
    assert place_of(one, "w") == 0.0
