"""Words and tags: the one rule by which a topic's texts are cut and compared.

docs/spec/discovery.md, Words and tags.

Nothing that peers must agree on rests on this: the tables of Unicode differ between versions, so a
descriptor is judged by `fields.read_line` alone. A node that cuts a new script otherwise than
another finds fewer topics, and rejects none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

from pulsarcast.model.errors import LocalError

DESCRIPTION_BYTES_MAX: Final = 512
"""Bounds a description: a paragraph, of which a peer may have to keep and show hundreds."""
TAGS_MAX: Final = 8
TAG_BYTES_MAX: Final = 32
"""Bounds a tag, and a word that leads to a topic."""


def words_of(text: str) -> list[str]:
    """The words of a text: runs of letters, marks and digits, after NFKC and case folding."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    spaced = "".join(each if unicodedata.category(each)[0] in "LMN" else " " for each in folded)
    return [word for word in spaced.split() if len(word.encode()) <= TAG_BYTES_MAX]


def tag_of(text: str) -> str:
    """The form in which a tag is signed and looked for: its words, joined by hyphens."""
    tag = "-".join(words_of(text))
    if not 0 < len(tag.encode()) <= TAG_BYTES_MAX:
        raise LocalError(f"a tag has 1 to {TAG_BYTES_MAX} bytes of letters and digits: {text!r}")
    return tag


def tags_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Tags in the form and order in which a descriptor holds them."""
    tags = sorted({tag_of(text) for text in texts})
    if len(tags) > TAGS_MAX:
        raise LocalError(f"a topic has at most {TAGS_MAX} tags")
    return tuple(tags)
