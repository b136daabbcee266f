"""Children that end with whoever started them, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
# Loaded before any fork: a child should not have to.
_libc: Final = ctypes.CDLL(None, use_errno=True)


def end_with(parent: int) -> None:
    """From now on, end at once when our parent does; or now, where it has ended already."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
