"""Parameters of the protocol: name, purpose, default, and the source of the number."""

from msgspec import Struct


class Parameters(Struct, frozen=True):
    """The values that a program may tune (docs/spec/pulsarcast.md, Parameters)."""

    # The DHT (Kademlia).
    bucket_size: int = 20
    """k: contacts per XOR bucket (Kademlia's own number)."""
    lookup_parallel: int = 3
    """alpha: questions in flight per lookup (Kademlia's own number)."""
    replicas: int = 3
    """r: peers that keep each block. `replicated` survives r-1 lost disks between two repairs."""
    rpc_timeout_s: float = 5.0
    """Longer than a round trip of 2 x 800 ms, the thesis' worst delays."""
    repair_interval_s: float = 60.0
    """How often a replica compares its key range with one neighbour. No paper gives a number."""
    block_expiry_s: float = 30 * 86_400.0
    refresh_interval_s: float = 600.0
    """How often a quiet bucket is refreshed (Kademlia: one hour; churn is higher here)."""
    contact_retry_s: float = 30.0
    """How long a contact that failed is left alone before it is tried again; it doubles."""

    # The dissemination tree.
    fanout: int = 6
    """Children per node and topic: fewer make trees deeper and the busiest node less busy."""
    join_timeout_s: float = 6.0
    join_backoff_s: float = 1.0
    """First delay before a join is tried again; it doubles, up to 16 times as long."""
    status_interval_s: float = 20.0
    """Heartbeat between neighbours; doubles up to `status_interval_s_max` while nothing changes."""
    status_interval_s_max: float = 60.0
    silence_factor: float = 3.0
    """A child silent for this many of the longest intervals is let go."""
    root_search_s: float = 15.0
    """How often an acting root looks for a peer closer to the key, so that trees merge."""
    handover_timeout_s: float = 30.0
    lazy_neighbours: int = 2

    # The dissemination cube.
    cube_view: int = 64
    """Members up to which each knows all others: as many as one message can name."""
    cube_bucket: int = 8
    """k: members kept per bucket beyond that. One live one reaches the whole bucket."""
    cube_nearest: int = 4
    """Nearest members to compare frontiers with. Half of all deep buckets hold one or two."""

    # Events.
    window_bytes: int = 1024 * 1024
    """Bytes of events per neighbour and topic in flight before credit must come back: one of the
    largest, or two, and 80 ms at 100 Mbit/s. More would stand in line where lines are narrow."""
    stall_s: float = 10.0
    """How long a publisher's pace follows a member that takes nothing at all: a restart, or one
    window at 3 Mbit/s. Then the member is left to recover from history."""
    gap_delay_s: float = 0.5
    """How long missing events may take to arrive live before they are asked for."""
    range_bytes_max: int = 256 * 1024
    """Answer size of one catch-up request."""
    frontier_page: int = 256
    """Marks per page of a frontier."""
    frontier_list: int = 8
    """Marks of a part of a frontier that is hashed as a list, and shown rather than compared: as a
    message of hashes takes a third of a kilobyte, they cost little more. All members of a network
    have to take the same."""
    version_marks: int = 2048
    """Marks that a version names itself: a tenth of a megabyte. Of more it names an index, with
    pages of so many."""
    held_back_max: int = 1024
    """Events per topic kept in memory while they wait for others; more are fetched again later."""
    barrier_max: int = 64
    """Heads that an event of causal order names; if there are more, merges join them first.

    As many as the format has room for: a publisher that finds more has to merge."""
    offer_delay_s: float = 10.0
    """How long a replica waits for the publisher to spread an event before it offers it."""

    # Requests to publish.
    outbox_retry_s: float = 10.0
    """First delay before a request is sent again; it doubles, up to 32 times as long."""
    outbox_max: int = 10_000
    requests_held_max: int = 1024
    retention_interval_s: float = 60.0

    # Content-based subscriptions (2d-tree thesis).
    content_capacity: int = 20
    """Pieces of subscriptions that a leaf holds before it splits (the thesis: 10 to 30)."""
    content_load_max: float = 50.0
    """Messages a second that a leaf may cause before it splits for that alone; 0: it never does."""
    content_lease_s: float = 3600.0
    """How long a subscription is kept for a subscriber that does not renew it."""
    content_upkeep_s: float = 10.0
    """How often a peer maintains the tree nodes that it holds for others."""
    content_compare_s: float = 30.0
    """How often a content subscriber compares with each of two members."""

    # Total order with several sequencers (Raft).
    election_timeout_s: float = 3.0
    """A leader silent for one to two of these is replaced. Raft, 9.3: well above a round trip."""
    leader_heartbeat_s: float = 0.5
    """A leader's heartbeat interval: several in an election timeout (Raft, 5.6)."""
    sequencer_log: int = 256
    """Entries that a sequencer keeps for lagging ones, though its history has them already."""
