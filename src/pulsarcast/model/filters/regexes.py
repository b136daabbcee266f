"""Regular expressions that a stranger may send: RE2, which takes time linear in the text."""

from __future__ import annotations

from typing import TypeAlias

import re2

from pulsarcast.model.filters.bounds import (
    REGEX_BYTES_MAX,
    REGEX_INPUT_BYTES_MAX,
    REGEX_MEMORY_BYTES,
    REGEX_PROGRAM_MAX,
)

Regex: TypeAlias = "re2._Regexp"


class RegexError(ValueError):
    """A pattern that is not one, or is too large."""


def compiled(pattern: str) -> Regex:
    """The pattern, ready to be looked for."""
    if len(pattern.encode()) > REGEX_BYTES_MAX:
        raise RegexError(f"a pattern has at most {REGEX_BYTES_MAX} bytes")
    options = re2.Options()
    options.max_mem = REGEX_MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True
    try:
        found = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        said = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise RegexError(f"not a pattern that RE2 takes: {said}") from error
    if not 0 <= found.programsize <= REGEX_PROGRAM_MAX:
        raise RegexError(f"a pattern of more than {REGEX_PROGRAM_MAX} instructions")
    return found


def occurs(regex: Regex, text: str) -> bool:
    """Whether the pattern is found anywhere in a text."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return False
    if len(data) > REGEX_INPUT_BYTES_MAX:
        return False
    return regex.search(data) is not None
