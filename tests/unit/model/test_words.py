"""Words and tags: one rule for what is signed and for what is typed."""

import pytest

from pulsarcast.model.errors import LocalError
from pulsarcast.model.words import TAG_BYTES_MAX, tag_of, tags_of, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Temperature in Lisbon, every minute!",
            ["temperature", "in", "lisbon", "every", "minute"],
        ),
        ("weather/lisbon-1_b", ["weather", "lisbon", "1", "b"]),
        ("Straße ﬁne \uff37ide", ["strasse", "fine", "wide"]),
        ("naïve nai\u0308ve", ["naïve", "naïve"]),
        ("हिन्दी 漢字", ["हिन्दी", "漢字"]),
        ("… \t — !", []),
        ("x" * (TAG_BYTES_MAX + 1) + " short", ["short"]),
    ],
)
def test_a_word_is_a_run_of_letters_and_digits_folded(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize("text", ["İstanbul", "ǅ", "ΑΣ", "ﬃ", "①", "K"])
def test_folding_twice_changes_nothing(text: str) -> None:
    assert words_of(" ".join(words_of(text))) == words_of(text)


def test_a_tag_is_its_words_joined_by_hyphens() -> None:
    assert tag_of("Machine  Learning!") == tag_of("machine-learning") == "machine-learning"
    assert tags_of(["IoT", "iot", "Air quality"]) == ("air-quality", "iot")


@pytest.mark.parametrize("text", ["", "!", "\x1b", "é" * 17, "a b " * 10])
def test_a_tag_without_words_or_too_long_is_refused(text: str) -> None:
    with pytest.raises(LocalError):
        tag_of(text)


def test_a_thousand_tags_are_refused() -> None:
    with pytest.raises(LocalError):
        tags_of(f"tag {number}" for number in range(1000))
