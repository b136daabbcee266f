"""A small disk that can be filled: a tmpfs, mounted where a node has its home."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pulsarcast.model.errors import LocalError

BYTES: Final = 128 * 2**20
_FILLER: Final = "filler"
_CHUNK: Final = bytes(256 * 1024)
_CLONE_NEWNS: Final = 0x00020000


def may_mount() -> bool:
    """Whether this process may mount at all."""
    return os.geteuid() == 0


def keep_mounts_to_ourselves() -> None:
    """From now on, what this process mounts ends with it, even where it is killed.

    For a program of its own only: it does not see what others mount later either.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) == 0:
        _call("mount", "--make-rprivate", "/")


class SmallDisk:
    """A mounted tmpfs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Leave no byte free."""
        file = os.open(self.path / _FILLER, os.O_WRONLY | os.O_CREAT, 0o600)
        chunk = _CHUNK
        try:
            while chunk:
                try:
                    os.write(file, chunk)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    chunk = chunk[: len(chunk) // 2]
        finally:
            os.close(file)

    def free(self) -> None:
        """Take out what was put in."""
        (self.path / _FILLER).unlink(missing_ok=True)


@contextmanager
def small_disk(path: Path, *, size_bytes: int = BYTES) -> Iterator[SmallDisk]:
    """Mount a small disk, and unmount it in the end, come what may."""
    if not may_mount():
        raise LocalError("a full disk needs root: the testbed mounts a small one for it")
    path.mkdir(parents=True, exist_ok=True)
    _call("mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=700", "pulsarcast", str(path))
    try:
        yield SmallDisk(path)
    finally:
        # Lazily: a process that has just been killed may still hold a file.
        _call("umount", "-l", str(path))


def _call(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise LocalError(f"{' '.join(words)}: {done.stderr.strip()}")
