"""What a node writes, whether it is the node's own or a stranger's."""

from collections.abc import Iterable

from pulsarcast.protocol.store import AnyWrite, Keep, Write


def flat(writes: Iterable[AnyWrite]) -> list[Write]:
    """All writes, with those that the disk may leave out."""
    found: list[Write] = []
    for write in writes:
        found += write.writes if isinstance(write, Keep) else (write,)
    return found
