"""Bounds on the messages that a peer may send; a message beyond them never reaches the core.

The core's own parameters stay well below. A bound that a later version raises is announced in
Hello first, because peers of this version reject what exceeds it.
"""

from typing import Final

FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bounds a frame: three of the largest events, or a catch-up answer of any sensible size."""

INTEGER_MAX: Final = 2**63 - 1
"""Bounds request ids, attempts, epochs and numbers: SQLite's and Arrow's signed 64 bits."""
COUNT_MAX: Final = 2**32 - 1
"""Bounds credits, replicas, and blocks of a key range."""
HOPS_MAX: Final = 1024

KEY_BYTES: Final = 32
DIGEST_BYTES_MIN: Final = 16
DIGEST_BYTES_MAX: Final = 32
REQUEST_ID_BYTES: Final = 32
CODE_BYTES_MAX: Final = 32
REASON_BYTES_MAX: Final = 1024

PATH_MAX: Final = 256
"""Bounds the peers from a member to its root: a tree of a million is some 20 deep, races make some
deeper."""
CONTACTS_MAX: Final = 64
ADDRESSES_MAX: Final = 16
ADDRESS_BYTES_MAX: Final = 256
MARKS_MAX: Final = 1024
BEYOND_MAX: Final = 65_536
"""Bounds the numbers beyond gaps, in all marks of a page together."""
PARTS_OF_ONE: Final = 16
"""Parts into which a part of a frontier's hash tree is cut, by a step of four bits."""
STEPS_MAX: Final = 32
"""Bounds the steps that name a part: 128 bits."""
PART_DIGEST_BYTES: Final = 16
ROW_BYTES: Final = PARTS_OF_ONE * PART_DIGEST_BYTES
GROUPS_BYTES_MAX: Final = 256 * PART_DIGEST_BYTES
"""Bounds the hashes of groups of topics that two peers compare in one message."""
PARTS_MAX: Final = 64
"""Bounds the parts that are compared in one message: 18 KB."""
SMALL_PARTS_MAX: Final = PARTS_MAX * PARTS_OF_ONE
"""Bounds the parts that marks are shown of in one message."""
START_PARTS_MAX: Final = 16
"""Bounds the parts of a start frontier that are asked for in one message."""
BLOCKS_MAX: Final = 1024
CIDS_MAX: Final = 1024
RANGES_MAX: Final = 1024
NAME_POINTERS_MAX: Final = 2
"""Bounds the pointers of one name in a message: the one that holds and one that clashes."""
LISTINGS_MAX: Final = 256
"""Bounds the listings under one key, so that one answer holds them all: 310 KB at most."""

STORE_BYTES: Final = 8
ENTRIES_MAX: Final = 256
MEMBERS_MAX: Final = 7
SIGNATURES_MAX: Final = 64
SIGNATURE_BYTES: Final = 64
CERTIFICATE_BYTES_MAX: Final = 512
"""Bounds a certificate: four of seven sequencers make 260 bytes. The core checks the exact size."""

TARGETS_MAX: Final = 4096
"""Bounds the nodes of content trees that one message takes an event to."""
TARGET_ATTRIBUTES_MAX: Final = 64
HELD_MAX: Final = 256
SHAPE_BYTES_MAX: Final = 1025
FILTERS_MAX: Final = 64
HAVE_BYTES_MAX: Final = 64 * 1024
CONTENT_MARKS_MAX: Final = 4096

NETWORK_BYTES_MAX: Final = 64
VERSIONS_MAX: Final = 16
INSTANCE_BYTES_MAX: Final = 16
FEATURES_MAX: Final = 64
FEATURE_BYTES_MAX: Final = 64
