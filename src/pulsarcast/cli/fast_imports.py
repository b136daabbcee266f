"""Fast imports: commands start without the parts of httpx that they do not use.

httpx imports its own command line (with all of rich), HTTP/2 and Trio where these are installed:
more than half of the time of a command that asks a daemon. Only a process that runs one command
and nothing else may leave them out: a program may use these parts of httpx.
"""

from __future__ import annotations

import sys
from typing import Any, Final, cast

_OTHERS: Final = ("h2", "trio")
_program: Final[dict[str, bool]] = {"is_ours": False}


def own_the_process() -> None:
    """This process runs one command, and ends with it."""
    _program["is_ours"] = True
    _modules().setdefault("httpx._main", None)


def import_http() -> None:
    """Import httpx, without what it would only bring for others."""
    if not _program["is_ours"] or "httpcore" in sys.modules:
        return
    # Python's own way to say that a module is not there.
    absent = [name for name in _OTHERS if name not in sys.modules]
    _modules().update(dict.fromkeys(absent))
    try:
        import httpcore  # noqa: F401
        import httpx  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]


def _modules() -> dict[str, Any]:
    return cast("dict[str, Any]", sys.modules)
