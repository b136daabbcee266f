"""Chance that every engine agrees on: draws by a specified hash.

A draw of `n` for a purpose and a text is: the SHA2-256 of the UTF-8 text `seed/purpose/text`, its
first 8 bytes read as an unsigned big-endian number, modulo n. In plain Python:

    int.from_bytes(hashlib.sha256(f"{seed}/{purpose}/{text}".encode()).digest()[:8]) % n
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def ticket(seed: int, purpose: str, text: Column) -> Column:
    """The first 8 bytes of the hash, as 16 hexadecimal digits: as text, they sort as numbers do."""
    return F.substring(F.sha2(F.concat(F.lit(f"{seed}/{purpose}/"), text), 256), 1, 16)


def draw(seed: int, purpose: str, text: Column, n: Column) -> Column:
    """One of 0 … n-1; n is below 2**31."""
    digits = ticket(seed, purpose, text)
    high = F.conv(F.substring(digits, 1, 8), 16, 10).cast("bigint")
    low = F.conv(F.substring(digits, 9, 8), 16, 10).cast("bigint")
    # Two halves, since 64 unsigned bits are more than a bigint holds.
    return ((high % n) * F.lit(1 << 32) + low) % n
