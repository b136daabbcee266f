"""Odd prose may only become less: see `prose.py` for what is counted."""

from __future__ import annotations

import re

import pytest

from tests.docs.prose import ROOT, Sentence, Text, ceilings, figures, sentences, texts

SHOWN = 10


def too_high(read: list[Text], held: dict[str, dict[str, float]]) -> list[str]:
    """One complaint for each figure above its ceiling, with the worst sentences."""
    counted = figures(read)
    return [
        f"{text.name}: {figure} is {counted[text.name][figure]}, above {held[text.name][figure]}\n"
        + "\n".join(f"  {it.file}:{it.line} {it.text}" for it in text.worst(figure)[:SHOWN])
        for text in read
        for figure in text.figures
        if counted[text.name][figure] > held[text.name][figure]
    ]


def test_no_figure_of_odd_prose_rises() -> None:
    read = texts()
    complaints = too_high(read, ceilings(read))
    assert not complaints, (
        "\n".join(complaints) + "\n`python -m tests.docs.prose --worst 40` shows more"
    )


def test_a_figure_above_its_ceiling_names_the_sentence() -> None:
    text = Text("docs", ("opens",), list(sentences("\n\nWho leaves sends a word.", "a.md", 1)))
    assert too_high([text], {"docs": {"opens": 100.0}}) == []
    (complaint,) = too_high([text], {"docs": {"opens": 99.9}})
    assert "a.md:3 Who leaves sends a word." in complaint


def test_sentences_know_their_line_in_paragraphs_and_in_lists() -> None:
    text = "One is\nhere. Two is there.\n\n- Three is\n  below.\n- Four. Five is\nlast.\n"
    assert [(it.line, it.text) for it in sentences(text, "", 1)] == [
        (1, "One is here."),
        (2, "Two is there."),
        (4, "Three is below."),
        (6, "Four."),
        (6, "Five is last."),
    ]


@pytest.mark.parametrize(
    ("text", "opens", "unnamed", "we"),
    [
        ("Who leaves sends a Leave.", 1, 0, 0),
        ("*Whoever leaves* sends a Leave.", 1, 1, 0),
        ("What does a node send?", 0, 0, 0),
        ("Nobody knows what we send to our children.", 0, 1, 2),
        ("The parent sends what it has.", 0, 0, 0),
    ],
)
def test_what_is_counted(text: str, opens: int, unnamed: int, we: int) -> None:
    sentence = Sentence("", 1, text)
    assert [sentence.counts(it) for it in ("opens", "unnamed", "we")] == [opens, unnamed, we]


def test_the_code_cites_pages_that_are_in_the_repository() -> None:
    wrong: list[str] = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        wrong += [f"{path}: {it}" for it in re.findall(r"\b[Dd]esign,? \d+", text)]
        for page in re.findall(r"\bdocs/\w+(?:/[\w-]+)?(?:\.md)?", text):
            if not any(ROOT.glob(f"{page}*")):
                wrong.append(f"{path}: {page}")
    assert wrong == []
