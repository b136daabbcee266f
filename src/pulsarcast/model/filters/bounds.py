"""Bounds on the size of a filter: filters come from strangers, and are run against every event.

A text within these bounds is parsed, and its cover found, in a few milliseconds; a test holds
hostile texts to that.
"""

from __future__ import annotations

from typing import Final

FILTER_BYTES_MAX: Final = 4096  # of the text, and of the canonical text it becomes
FILTER_DEPTH_MAX: Final = 32  # of parentheses, `and`, `or` and `not` within each other
FILTER_TERMS_MAX: Final = 256  # comparisons; every value of a list counts as one
FILTER_ALTERNATIVES_MAX: Final = 64  # conjunctions, once `or` has been moved to the outside
FILTER_BOXES_MAX: Final = 64  # of a cover
FILTER_REGEXES_MAX: Final = 8
REGEX_BYTES_MAX: Final = 256
REGEX_PROGRAM_MAX: Final = 2000  # instructions that RE2 makes of one
REGEX_MEMORY_BYTES: Final = 1 << 18  # that RE2 may use for one
REGEX_INPUT_BYTES_MAX: Final = 1 << 16  # a longer text is not looked through: it matches nothing
