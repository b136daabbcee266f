from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reach(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[Reach]
    PUBLIC: _ClassVar[Reach]
    RELAYED: _ClassVar[Reach]
    PRIVATE: _ClassVar[Reach]

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMBER: _ClassVar[Role]
    VISITOR: _ClassVar[Role]

class EntryKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT: _ClassVar[EntryKind]
    NOTHING: _ClassVar[EntryKind]
    MEMBERS: _ClassVar[EntryKind]

class DialCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REACHED: _ClassVar[DialCode]
    NOT_REACHED: _ClassVar[DialCode]
    BUSY: _ClassVar[DialCode]
UNKNOWN: Reach
PUBLIC: Reach
RELAYED: Reach
PRIVATE: Reach
MEMBER: Role
VISITOR: Role
EVENT: EntryKind
NOTHING: EntryKind
MEMBERS: EntryKind
REACHED: DialCode
NOT_REACHED: DialCode
BUSY: DialCode

class Frame(_message.Message):
    __slots__ = ("event", "credit", "status", "find_peers", "peers", "store_blocks", "stored", "find_block", "block_found", "frontier_page", "fetch_range", "range", "compare_keys", "request_to_publish", "request_answered", "join", "join_accepted", "join_referred", "join_refused", "leave", "hand_over", "keys_differ", "want_blocks", "find_pointer", "pointer_found", "store_pointer", "hello", "meet", "members", "dial_me", "dial_answer", "reach_changed", "alive", "compare_frontiers", "fetch_start", "start_parts", "compare_topics", "request_vote", "vote", "append", "appended", "summon", "request_referred", "probe_event", "matched_event", "place_subscription", "installed", "place_state", "place_taken", "tree_shape", "compare_content", "content_compared", "tree_hint", "ask_shape", "find_listings", "listings_found", "store_listings")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FIND_PEERS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    STORE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    FIND_BLOCK_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FOUND_FIELD_NUMBER: _ClassVar[int]
    FRONTIER_PAGE_FIELD_NUMBER: _ClassVar[int]
    FETCH_RANGE_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    COMPARE_KEYS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TO_PUBLISH_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ANSWERED_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    JOIN_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    JOIN_REFERRED_FIELD_NUMBER: _ClassVar[int]
    JOIN_REFUSED_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    HAND_OVER_FIELD_NUMBER: _ClassVar[int]
    KEYS_DIFFER_FIELD_NUMBER: _ClassVar[int]
    WANT_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    FIND_POINTER_FIELD_NUMBER: _ClassVar[int]
    POINTER_FOUND_FIELD_NUMBER: _ClassVar[int]
    STORE_POINTER_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    MEET_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    DIAL_ME_FIELD_NUMBER: _ClassVar[int]
    DIAL_ANSWER_FIELD_NUMBER: _ClassVar[int]
    REACH_CHANGED_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    COMPARE_FRONTIERS_FIELD_NUMBER: _ClassVar[int]
    FETCH_START_FIELD_NUMBER: _ClassVar[int]
    START_PARTS_FIELD_NUMBER: _ClassVar[int]
    COMPARE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_VOTE_FIELD_NUMBER: _ClassVar[int]
    VOTE_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    SUMMON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_REFERRED_FIELD_NUMBER: _ClassVar[int]
    PROBE_EVENT_FIELD_NUMBER: _ClassVar[int]
    MATCHED_EVENT_FIELD_NUMBER: _ClassVar[int]
    PLACE_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    INSTALLED_FIELD_NUMBER: _ClassVar[int]
    PLACE_STATE_FIELD_NUMBER: _ClassVar[int]
    PLACE_TAKEN_FIELD_NUMBER: _ClassVar[int]
    TREE_SHAPE_FIELD_NUMBER: _ClassVar[int]
    COMPARE_CONTENT_FIELD_NUMBER: _ClassVar[int]
    CONTENT_COMPARED_FIELD_NUMBER: _ClassVar[int]
    TREE_HINT_FIELD_NUMBER: _ClassVar[int]
    ASK_SHAPE_FIELD_NUMBER: _ClassVar[int]
    FIND_LISTINGS_FIELD_NUMBER: _ClassVar[int]
    LISTINGS_FOUND_FIELD_NUMBER: _ClassVar[int]
    STORE_LISTINGS_FIELD_NUMBER: _ClassVar[int]
    event: Event
    credit: Credit
    status: Status
    find_peers: FindPeers
    peers: Peers
    store_blocks: StoreBlocks
    stored: Stored
    find_block: FindBlock
    block_found: BlockFound
    frontier_page: FrontierPage
    fetch_range: FetchRange
    range: Range
    compare_keys: CompareKeys
    request_to_publish: RequestToPublish
    request_answered: RequestAnswered
    join: Join
    join_accepted: JoinAccepted
    join_referred: JoinReferred
    join_refused: JoinRefused
    leave: Leave
    hand_over: HandOver
    keys_differ: KeysDiffer
    want_blocks: WantBlocks
    find_pointer: FindPointer
    pointer_found: PointerFound
    store_pointer: StorePointer
    hello: Hello
    meet: Meet
    members: Members
    dial_me: DialMe
    dial_answer: DialAnswer
    reach_changed: ReachChanged
    alive: Alive
    compare_frontiers: CompareFrontiers
    fetch_start: FetchStart
    start_parts: StartParts
    compare_topics: CompareTopics
    request_vote: RequestVote
    vote: Vote
    append: Append
    appended: Appended
    summon: Summon
    request_referred: RequestReferred
    probe_event: ProbeEvent
    matched_event: MatchedEvent
    place_subscription: PlaceSubscription
    installed: Installed
    place_state: PlaceState
    place_taken: PlaceTaken
    tree_shape: TreeShape
    compare_content: CompareContent
    content_compared: ContentCompared
    tree_hint: TreeHint
    ask_shape: AskShape
    find_listings: FindListings
    listings_found: ListingsFound
    store_listings: StoreListings
    def __init__(self, event: _Optional[_Union[Event, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., status: _Optional[_Union[Status, _Mapping]] = ..., find_peers: _Optional[_Union[FindPeers, _Mapping]] = ..., peers: _Optional[_Union[Peers, _Mapping]] = ..., store_blocks: _Optional[_Union[StoreBlocks, _Mapping]] = ..., stored: _Optional[_Union[Stored, _Mapping]] = ..., find_block: _Optional[_Union[FindBlock, _Mapping]] = ..., block_found: _Optional[_Union[BlockFound, _Mapping]] = ..., frontier_page: _Optional[_Union[FrontierPage, _Mapping]] = ..., fetch_range: _Optional[_Union[FetchRange, _Mapping]] = ..., range: _Optional[_Union[Range, _Mapping]] = ..., compare_keys: _Optional[_Union[CompareKeys, _Mapping]] = ..., request_to_publish: _Optional[_Union[RequestToPublish, _Mapping]] = ..., request_answered: _Optional[_Union[RequestAnswered, _Mapping]] = ..., join: _Optional[_Union[Join, _Mapping]] = ..., join_accepted: _Optional[_Union[JoinAccepted, _Mapping]] = ..., join_referred: _Optional[_Union[JoinReferred, _Mapping]] = ..., join_refused: _Optional[_Union[JoinRefused, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., hand_over: _Optional[_Union[HandOver, _Mapping]] = ..., keys_differ: _Optional[_Union[KeysDiffer, _Mapping]] = ..., want_blocks: _Optional[_Union[WantBlocks, _Mapping]] = ..., find_pointer: _Optional[_Union[FindPointer, _Mapping]] = ..., pointer_found: _Optional[_Union[PointerFound, _Mapping]] = ..., store_pointer: _Optional[_Union[StorePointer, _Mapping]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., meet: _Optional[_Union[Meet, _Mapping]] = ..., members: _Optional[_Union[Members, _Mapping]] = ..., dial_me: _Optional[_Union[DialMe, _Mapping]] = ..., dial_answer: _Optional[_Union[DialAnswer, _Mapping]] = ..., reach_changed: _Optional[_Union[ReachChanged, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ..., compare_frontiers: _Optional[_Union[CompareFrontiers, _Mapping]] = ..., fetch_start: _Optional[_Union[FetchStart, _Mapping]] = ..., start_parts: _Optional[_Union[StartParts, _Mapping]] = ..., compare_topics: _Optional[_Union[CompareTopics, _Mapping]] = ..., request_vote: _Optional[_Union[RequestVote, _Mapping]] = ..., vote: _Optional[_Union[Vote, _Mapping]] = ..., append: _Optional[_Union[Append, _Mapping]] = ..., appended: _Optional[_Union[Appended, _Mapping]] = ..., summon: _Optional[_Union[Summon, _Mapping]] = ..., request_referred: _Optional[_Union[RequestReferred, _Mapping]] = ..., probe_event: _Optional[_Union[ProbeEvent, _Mapping]] = ..., matched_event: _Optional[_Union[MatchedEvent, _Mapping]] = ..., place_subscription: _Optional[_Union[PlaceSubscription, _Mapping]] = ..., installed: _Optional[_Union[Installed, _Mapping]] = ..., place_state: _Optional[_Union[PlaceState, _Mapping]] = ..., place_taken: _Optional[_Union[PlaceTaken, _Mapping]] = ..., tree_shape: _Optional[_Union[TreeShape, _Mapping]] = ..., compare_content: _Optional[_Union[CompareContent, _Mapping]] = ..., content_compared: _Optional[_Union[ContentCompared, _Mapping]] = ..., tree_hint: _Optional[_Union[TreeHint, _Mapping]] = ..., ask_shape: _Optional[_Union[AskShape, _Mapping]] = ..., find_listings: _Optional[_Union[FindListings, _Mapping]] = ..., listings_found: _Optional[_Union[ListingsFound, _Mapping]] = ..., store_listings: _Optional[_Union[StoreListings, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("network", "versions", "features", "frame_bytes_max", "addresses", "instance", "reach")
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    FRAME_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    network: str
    versions: _containers.RepeatedScalarFieldContainer[int]
    features: _containers.RepeatedScalarFieldContainer[str]
    frame_bytes_max: int
    addresses: _containers.RepeatedScalarFieldContainer[str]
    instance: bytes
    reach: Reach
    def __init__(self, network: _Optional[str] = ..., versions: _Optional[_Iterable[int]] = ..., features: _Optional[_Iterable[str]] = ..., frame_bytes_max: _Optional[int] = ..., addresses: _Optional[_Iterable[str]] = ..., instance: _Optional[bytes] = ..., reach: _Optional[_Union[Reach, str]] = ...) -> None: ...

class Contact(_message.Message):
    __slots__ = ("peer", "addresses")
    PEER_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    peer: bytes
    addresses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, peer: _Optional[bytes] = ..., addresses: _Optional[_Iterable[str]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("block", "hops", "certificate")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    block: bytes
    hops: int
    certificate: bytes
    def __init__(self, block: _Optional[bytes] = ..., hops: _Optional[int] = ..., certificate: _Optional[bytes] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("topic", "size")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    size: int
    def __init__(self, topic: _Optional[bytes] = ..., size: _Optional[int] = ...) -> None: ...

class RequestToPublish(_message.Message):
    __slots__ = ("block", "replicated", "settled")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    REPLICATED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    block: bytes
    replicated: bool
    settled: int
    def __init__(self, block: _Optional[bytes] = ..., replicated: bool = ..., settled: _Optional[int] = ...) -> None: ...

class RequestAnswered(_message.Message):
    __slots__ = ("topic", "request_id", "event", "replicas", "message", "code")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    request_id: bytes
    event: bytes
    replicas: int
    message: str
    code: str
    def __init__(self, topic: _Optional[bytes] = ..., request_id: _Optional[bytes] = ..., event: _Optional[bytes] = ..., replicas: _Optional[int] = ..., message: _Optional[str] = ..., code: _Optional[str] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("topic", "attempt", "role", "root", "handed_down", "fresh")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    HANDED_DOWN_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    attempt: int
    role: Role
    root: bytes
    handed_down: bool
    fresh: bool
    def __init__(self, topic: _Optional[bytes] = ..., attempt: _Optional[int] = ..., role: _Optional[_Union[Role, str]] = ..., root: _Optional[bytes] = ..., handed_down: bool = ..., fresh: bool = ...) -> None: ...

class JoinAccepted(_message.Message):
    __slots__ = ("topic", "attempt", "path", "members", "digest", "private_root", "delay_us")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_ROOT_FIELD_NUMBER: _ClassVar[int]
    DELAY_US_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    attempt: int
    path: _containers.RepeatedScalarFieldContainer[bytes]
    members: _containers.RepeatedCompositeFieldContainer[Contact]
    digest: bytes
    private_root: bool
    delay_us: int
    def __init__(self, topic: _Optional[bytes] = ..., attempt: _Optional[int] = ..., path: _Optional[_Iterable[bytes]] = ..., members: _Optional[_Iterable[_Union[Contact, _Mapping]]] = ..., digest: _Optional[bytes] = ..., private_root: bool = ..., delay_us: _Optional[int] = ...) -> None: ...

class JoinReferred(_message.Message):
    __slots__ = ("topic", "attempt", "contact", "handed_down")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CONTACT_FIELD_NUMBER: _ClassVar[int]
    HANDED_DOWN_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    attempt: int
    contact: Contact
    handed_down: bool
    def __init__(self, topic: _Optional[bytes] = ..., attempt: _Optional[int] = ..., contact: _Optional[_Union[Contact, _Mapping]] = ..., handed_down: bool = ...) -> None: ...

class JoinRefused(_message.Message):
    __slots__ = ("topic", "attempt", "code")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    attempt: int
    code: str
    def __init__(self, topic: _Optional[bytes] = ..., attempt: _Optional[int] = ..., code: _Optional[str] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    def __init__(self, topic: _Optional[bytes] = ...) -> None: ...

class HandOver(_message.Message):
    __slots__ = ("topic", "contact")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CONTACT_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    contact: Contact
    def __init__(self, topic: _Optional[bytes] = ..., contact: _Optional[_Union[Contact, _Mapping]] = ...) -> None: ...

class Meet(_message.Message):
    __slots__ = ("topic", "key", "count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    key: bytes
    count: int
    def __init__(self, topic: _Optional[bytes] = ..., key: _Optional[bytes] = ..., count: _Optional[int] = ...) -> None: ...

class Members(_message.Message):
    __slots__ = ("topic", "members")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    members: _containers.RepeatedCompositeFieldContainer[Contact]
    def __init__(self, topic: _Optional[bytes] = ..., members: _Optional[_Iterable[_Union[Contact, _Mapping]]] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("topic", "digest", "path", "members", "answer", "private_root", "delay_us", "regular")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_ROOT_FIELD_NUMBER: _ClassVar[int]
    DELAY_US_FIELD_NUMBER: _ClassVar[int]
    REGULAR_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    digest: bytes
    path: _containers.RepeatedScalarFieldContainer[bytes]
    members: _containers.RepeatedCompositeFieldContainer[Contact]
    answer: bool
    private_root: bool
    delay_us: int
    regular: bool
    def __init__(self, topic: _Optional[bytes] = ..., digest: _Optional[bytes] = ..., path: _Optional[_Iterable[bytes]] = ..., members: _Optional[_Iterable[_Union[Contact, _Mapping]]] = ..., answer: bool = ..., private_root: bool = ..., delay_us: _Optional[int] = ..., regular: bool = ...) -> None: ...

class CompareTopics(_message.Message):
    __slots__ = ("hashes", "answer")
    HASHES_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    hashes: bytes
    answer: bool
    def __init__(self, hashes: _Optional[bytes] = ..., answer: bool = ...) -> None: ...

class Mark(_message.Message):
    __slots__ = ("publisher", "epoch", "floor", "high", "cid", "retired", "beyond")
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    CID_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    BEYOND_FIELD_NUMBER: _ClassVar[int]
    publisher: bytes
    epoch: int
    floor: int
    high: int
    cid: bytes
    retired: int
    beyond: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, publisher: _Optional[bytes] = ..., epoch: _Optional[int] = ..., floor: _Optional[int] = ..., high: _Optional[int] = ..., cid: _Optional[bytes] = ..., retired: _Optional[int] = ..., beyond: _Optional[_Iterable[int]] = ...) -> None: ...

class FrontierPart(_message.Message):
    __slots__ = ("steps", "digests")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    steps: bytes
    digests: bytes
    def __init__(self, steps: _Optional[bytes] = ..., digests: _Optional[bytes] = ...) -> None: ...

class CompareFrontiers(_message.Message):
    __slots__ = ("topic", "parts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    parts: _containers.RepeatedCompositeFieldContainer[FrontierPart]
    def __init__(self, topic: _Optional[bytes] = ..., parts: _Optional[_Iterable[_Union[FrontierPart, _Mapping]]] = ...) -> None: ...

class FrontierPage(_message.Message):
    __slots__ = ("topic", "marks", "answer", "parts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    marks: _containers.RepeatedCompositeFieldContainer[Mark]
    answer: bool
    parts: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic: _Optional[bytes] = ..., marks: _Optional[_Iterable[_Union[Mark, _Mapping]]] = ..., answer: bool = ..., parts: _Optional[_Iterable[bytes]] = ...) -> None: ...

class FetchStart(_message.Message):
    __slots__ = ("topic", "root", "parts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    root: bytes
    parts: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic: _Optional[bytes] = ..., root: _Optional[bytes] = ..., parts: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PartHash(_message.Message):
    __slots__ = ("steps", "digest")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    steps: bytes
    digest: bytes
    def __init__(self, steps: _Optional[bytes] = ..., digest: _Optional[bytes] = ...) -> None: ...

class StartParts(_message.Message):
    __slots__ = ("topic", "root", "starts", "parts", "marks")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    root: bytes
    starts: _containers.RepeatedCompositeFieldContainer[PartHash]
    parts: _containers.RepeatedCompositeFieldContainer[FrontierPart]
    marks: _containers.RepeatedCompositeFieldContainer[Mark]
    def __init__(self, topic: _Optional[bytes] = ..., root: _Optional[bytes] = ..., starts: _Optional[_Iterable[_Union[PartHash, _Mapping]]] = ..., parts: _Optional[_Iterable[_Union[FrontierPart, _Mapping]]] = ..., marks: _Optional[_Iterable[_Union[Mark, _Mapping]]] = ...) -> None: ...

class FetchRange(_message.Message):
    __slots__ = ("request", "topic", "publisher", "epoch", "first", "last")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    request: int
    topic: bytes
    publisher: bytes
    epoch: int
    first: int
    last: int
    def __init__(self, request: _Optional[int] = ..., topic: _Optional[bytes] = ..., publisher: _Optional[bytes] = ..., epoch: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("request", "topic", "blocks", "more", "certificates")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    request: int
    topic: bytes
    blocks: _containers.RepeatedScalarFieldContainer[bytes]
    more: bool
    certificates: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, request: _Optional[int] = ..., topic: _Optional[bytes] = ..., blocks: _Optional[_Iterable[bytes]] = ..., more: bool = ..., certificates: _Optional[_Iterable[bytes]] = ...) -> None: ...

class RequestVote(_message.Message):
    __slots__ = ("topic", "term", "store", "last_index", "last_term", "pre_vote")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    term: int
    store: bytes
    last_index: int
    last_term: int
    pre_vote: bool
    def __init__(self, topic: _Optional[bytes] = ..., term: _Optional[int] = ..., store: _Optional[bytes] = ..., last_index: _Optional[int] = ..., last_term: _Optional[int] = ..., pre_vote: bool = ...) -> None: ...

class Vote(_message.Message):
    __slots__ = ("topic", "term", "store", "granted", "pre_vote")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    term: int
    store: bytes
    granted: bool
    pre_vote: bool
    def __init__(self, topic: _Optional[bytes] = ..., term: _Optional[int] = ..., store: _Optional[bytes] = ..., granted: bool = ..., pre_vote: bool = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("term", "position", "kind", "body")
    TERM_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    term: int
    position: int
    kind: EntryKind
    body: bytes
    def __init__(self, term: _Optional[int] = ..., position: _Optional[int] = ..., kind: _Optional[_Union[EntryKind, str]] = ..., body: _Optional[bytes] = ...) -> None: ...

class SequencerMember(_message.Message):
    __slots__ = ("peer", "store")
    PEER_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    peer: bytes
    store: bytes
    def __init__(self, peer: _Optional[bytes] = ..., store: _Optional[bytes] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("index", "term", "position", "cid", "members", "version")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    index: int
    term: int
    position: int
    cid: bytes
    members: _containers.RepeatedCompositeFieldContainer[SequencerMember]
    version: bytes
    def __init__(self, index: _Optional[int] = ..., term: _Optional[int] = ..., position: _Optional[int] = ..., cid: _Optional[bytes] = ..., members: _Optional[_Iterable[_Union[SequencerMember, _Mapping]]] = ..., version: _Optional[bytes] = ...) -> None: ...

class Append(_message.Message):
    __slots__ = ("topic", "term", "store", "before_index", "before_term", "entries", "committed", "certify", "settled", "snapshot")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_INDEX_FIELD_NUMBER: _ClassVar[int]
    BEFORE_TERM_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    CERTIFY_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    term: int
    store: bytes
    before_index: int
    before_term: int
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    committed: int
    certify: int
    settled: int
    snapshot: Snapshot
    def __init__(self, topic: _Optional[bytes] = ..., term: _Optional[int] = ..., store: _Optional[bytes] = ..., before_index: _Optional[int] = ..., before_term: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., committed: _Optional[int] = ..., certify: _Optional[int] = ..., settled: _Optional[int] = ..., snapshot: _Optional[_Union[Snapshot, _Mapping]] = ...) -> None: ...

class Signature(_message.Message):
    __slots__ = ("position", "signature")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    position: int
    signature: bytes
    def __init__(self, position: _Optional[int] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Appended(_message.Message):
    __slots__ = ("topic", "term", "store", "agreed", "matched", "held", "signatures")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    term: int
    store: bytes
    agreed: bool
    matched: int
    held: int
    signatures: _containers.RepeatedCompositeFieldContainer[Signature]
    def __init__(self, topic: _Optional[bytes] = ..., term: _Optional[int] = ..., store: _Optional[bytes] = ..., agreed: bool = ..., matched: _Optional[int] = ..., held: _Optional[int] = ..., signatures: _Optional[_Iterable[_Union[Signature, _Mapping]]] = ...) -> None: ...

class Summon(_message.Message):
    __slots__ = ("topic", "version")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    version: bytes
    def __init__(self, topic: _Optional[bytes] = ..., version: _Optional[bytes] = ...) -> None: ...

class RequestReferred(_message.Message):
    __slots__ = ("topic", "request_id", "leader")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    request_id: bytes
    leader: bytes
    def __init__(self, topic: _Optional[bytes] = ..., request_id: _Optional[bytes] = ..., leader: _Optional[bytes] = ...) -> None: ...

class DialMe(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: int
    def __init__(self, request: _Optional[int] = ...) -> None: ...

class DialAnswer(_message.Message):
    __slots__ = ("request", "code", "address")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    request: int
    code: DialCode
    address: str
    def __init__(self, request: _Optional[int] = ..., code: _Optional[_Union[DialCode, str]] = ..., address: _Optional[str] = ...) -> None: ...

class ReachChanged(_message.Message):
    __slots__ = ("reach", "addresses")
    REACH_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    reach: Reach
    addresses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, reach: _Optional[_Union[Reach, str]] = ..., addresses: _Optional[_Iterable[str]] = ...) -> None: ...

class Alive(_message.Message):
    __slots__ = ("answer",)
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    answer: bool
    def __init__(self, answer: bool = ...) -> None: ...

class FindPeers(_message.Message):
    __slots__ = ("request", "key", "count")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    request: int
    key: bytes
    count: int
    def __init__(self, request: _Optional[int] = ..., key: _Optional[bytes] = ..., count: _Optional[int] = ...) -> None: ...

class Peers(_message.Message):
    __slots__ = ("request", "contacts")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CONTACTS_FIELD_NUMBER: _ClassVar[int]
    request: int
    contacts: _containers.RepeatedCompositeFieldContainer[Contact]
    def __init__(self, request: _Optional[int] = ..., contacts: _Optional[_Iterable[_Union[Contact, _Mapping]]] = ...) -> None: ...

class FindBlock(_message.Message):
    __slots__ = ("request", "cid")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CID_FIELD_NUMBER: _ClassVar[int]
    request: int
    cid: bytes
    def __init__(self, request: _Optional[int] = ..., cid: _Optional[bytes] = ...) -> None: ...

class BlockFound(_message.Message):
    __slots__ = ("request", "block", "contacts")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    CONTACTS_FIELD_NUMBER: _ClassVar[int]
    request: int
    block: bytes
    contacts: _containers.RepeatedCompositeFieldContainer[Contact]
    def __init__(self, request: _Optional[int] = ..., block: _Optional[bytes] = ..., contacts: _Optional[_Iterable[_Union[Contact, _Mapping]]] = ...) -> None: ...

class StoreBlocks(_message.Message):
    __slots__ = ("request", "blocks", "if_closest")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    IF_CLOSEST_FIELD_NUMBER: _ClassVar[int]
    request: int
    blocks: _containers.RepeatedScalarFieldContainer[bytes]
    if_closest: bool
    def __init__(self, request: _Optional[int] = ..., blocks: _Optional[_Iterable[bytes]] = ..., if_closest: bool = ...) -> None: ...

class Stored(_message.Message):
    __slots__ = ("request", "cids")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CIDS_FIELD_NUMBER: _ClassVar[int]
    request: int
    cids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, request: _Optional[int] = ..., cids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class FindPointer(_message.Message):
    __slots__ = ("request", "key")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    request: int
    key: bytes
    def __init__(self, request: _Optional[int] = ..., key: _Optional[bytes] = ...) -> None: ...

class PointerFound(_message.Message):
    __slots__ = ("request", "pointers", "contacts")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    POINTERS_FIELD_NUMBER: _ClassVar[int]
    CONTACTS_FIELD_NUMBER: _ClassVar[int]
    request: int
    pointers: _containers.RepeatedScalarFieldContainer[bytes]
    contacts: _containers.RepeatedCompositeFieldContainer[Contact]
    def __init__(self, request: _Optional[int] = ..., pointers: _Optional[_Iterable[bytes]] = ..., contacts: _Optional[_Iterable[_Union[Contact, _Mapping]]] = ...) -> None: ...

class StorePointer(_message.Message):
    __slots__ = ("request", "pointers")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    POINTERS_FIELD_NUMBER: _ClassVar[int]
    request: int
    pointers: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, request: _Optional[int] = ..., pointers: _Optional[_Iterable[bytes]] = ...) -> None: ...

class FindListings(_message.Message):
    __slots__ = ("request", "key")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    request: int
    key: bytes
    def __init__(self, request: _Optional[int] = ..., key: _Optional[bytes] = ...) -> None: ...

class ListingsFound(_message.Message):
    __slots__ = ("request", "listings", "full", "contacts")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LISTINGS_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    CONTACTS_FIELD_NUMBER: _ClassVar[int]
    request: int
    listings: _containers.RepeatedScalarFieldContainer[bytes]
    full: bool
    contacts: _containers.RepeatedCompositeFieldContainer[Contact]
    def __init__(self, request: _Optional[int] = ..., listings: _Optional[_Iterable[bytes]] = ..., full: bool = ..., contacts: _Optional[_Iterable[_Union[Contact, _Mapping]]] = ...) -> None: ...

class StoreListings(_message.Message):
    __slots__ = ("request", "key", "listings")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    LISTINGS_FIELD_NUMBER: _ClassVar[int]
    request: int
    key: bytes
    listings: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, request: _Optional[int] = ..., key: _Optional[bytes] = ..., listings: _Optional[_Iterable[bytes]] = ...) -> None: ...

class KeyRange(_message.Message):
    __slots__ = ("first", "last", "count", "digest")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    first: bytes
    last: bytes
    count: int
    digest: bytes
    def __init__(self, first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., count: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class CompareKeys(_message.Message):
    __slots__ = ("request", "range")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    request: int
    range: KeyRange
    def __init__(self, request: _Optional[int] = ..., range: _Optional[_Union[KeyRange, _Mapping]] = ...) -> None: ...

class KeysDiffer(_message.Message):
    __slots__ = ("request", "first", "last", "cids", "ranges")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    CIDS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    request: int
    first: bytes
    last: bytes
    cids: _containers.RepeatedScalarFieldContainer[bytes]
    ranges: _containers.RepeatedCompositeFieldContainer[KeyRange]
    def __init__(self, request: _Optional[int] = ..., first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., cids: _Optional[_Iterable[bytes]] = ..., ranges: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ...) -> None: ...

class WantBlocks(_message.Message):
    __slots__ = ("request", "cids")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CIDS_FIELD_NUMBER: _ClassVar[int]
    request: int
    cids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, request: _Optional[int] = ..., cids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("attribute", "at", "wanted", "stage")
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    attribute: int
    at: int
    wanted: int
    stage: int
    def __init__(self, attribute: _Optional[int] = ..., at: _Optional[int] = ..., wanted: _Optional[int] = ..., stage: _Optional[int] = ...) -> None: ...

class ProbeEvent(_message.Message):
    __slots__ = ("block", "attributes", "targets", "hops")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    block: bytes
    attributes: _containers.RepeatedScalarFieldContainer[str]
    targets: _containers.RepeatedCompositeFieldContainer[Target]
    hops: int
    def __init__(self, block: _Optional[bytes] = ..., attributes: _Optional[_Iterable[str]] = ..., targets: _Optional[_Iterable[_Union[Target, _Mapping]]] = ..., hops: _Optional[int] = ...) -> None: ...

class MatchedEvent(_message.Message):
    __slots__ = ("block", "hops")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    block: bytes
    hops: int
    def __init__(self, block: _Optional[bytes] = ..., hops: _Optional[int] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("record", "piece", "low", "high", "closed", "left_s")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    LEFT_S_FIELD_NUMBER: _ClassVar[int]
    record: bytes
    piece: int
    low: float
    high: float
    closed: bool
    left_s: int
    def __init__(self, record: _Optional[bytes] = ..., piece: _Optional[int] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., closed: bool = ..., left_s: _Optional[int] = ...) -> None: ...

class PlaceSubscription(_message.Message):
    __slots__ = ("attribute", "at", "stage", "held", "hops", "topic", "token")
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    attribute: str
    at: int
    stage: int
    held: Held
    hops: int
    topic: bytes
    token: int
    def __init__(self, attribute: _Optional[str] = ..., at: _Optional[int] = ..., stage: _Optional[int] = ..., held: _Optional[_Union[Held, _Mapping]] = ..., hops: _Optional[int] = ..., topic: _Optional[bytes] = ..., token: _Optional[int] = ...) -> None: ...

class Installed(_message.Message):
    __slots__ = ("topic", "sid", "number", "piece", "attribute", "leaf", "hops", "token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    LEAF_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    sid: int
    number: int
    piece: int
    attribute: str
    leaf: int
    hops: int
    token: int
    def __init__(self, topic: _Optional[bytes] = ..., sid: _Optional[int] = ..., number: _Optional[int] = ..., piece: _Optional[int] = ..., attribute: _Optional[str] = ..., leaf: _Optional[int] = ..., hops: _Optional[int] = ..., token: _Optional[int] = ...) -> None: ...

class PlaceState(_message.Message):
    __slots__ = ("topic", "attribute", "at", "purpose", "is_split", "held", "shape", "token", "home", "hops", "cut", "reach")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    IS_SPLIT_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    attribute: str
    at: int
    purpose: int
    is_split: bool
    held: _containers.RepeatedCompositeFieldContainer[Held]
    shape: bytes
    token: int
    home: bytes
    hops: int
    cut: int
    reach: int
    def __init__(self, topic: _Optional[bytes] = ..., attribute: _Optional[str] = ..., at: _Optional[int] = ..., purpose: _Optional[int] = ..., is_split: bool = ..., held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ..., shape: _Optional[bytes] = ..., token: _Optional[int] = ..., home: _Optional[bytes] = ..., hops: _Optional[int] = ..., cut: _Optional[int] = ..., reach: _Optional[int] = ...) -> None: ...

class PlaceTaken(_message.Message):
    __slots__ = ("topic", "attribute", "at", "token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    attribute: str
    at: int
    token: int
    def __init__(self, topic: _Optional[bytes] = ..., attribute: _Optional[str] = ..., at: _Optional[int] = ..., token: _Optional[int] = ...) -> None: ...

class TreeHint(_message.Message):
    __slots__ = ("topic", "attribute", "about", "at", "hops")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    attribute: str
    about: int
    at: int
    hops: int
    def __init__(self, topic: _Optional[bytes] = ..., attribute: _Optional[str] = ..., about: _Optional[int] = ..., at: _Optional[int] = ..., hops: _Optional[int] = ...) -> None: ...

class AskShape(_message.Message):
    __slots__ = ("topic", "attribute", "at", "token", "asker", "hops")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ASKER_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    attribute: str
    at: int
    token: int
    asker: bytes
    hops: int
    def __init__(self, topic: _Optional[bytes] = ..., attribute: _Optional[str] = ..., at: _Optional[int] = ..., token: _Optional[int] = ..., asker: _Optional[bytes] = ..., hops: _Optional[int] = ...) -> None: ...

class TreeShape(_message.Message):
    __slots__ = ("topic", "attribute", "below", "shape", "token", "cut", "reach", "widths", "parts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    BELOW_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    WIDTHS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    attribute: str
    below: int
    shape: bytes
    token: int
    cut: int
    reach: int
    widths: bytes
    parts: int
    def __init__(self, topic: _Optional[bytes] = ..., attribute: _Optional[str] = ..., below: _Optional[int] = ..., shape: _Optional[bytes] = ..., token: _Optional[int] = ..., cut: _Optional[int] = ..., reach: _Optional[int] = ..., widths: _Optional[bytes] = ..., parts: _Optional[int] = ...) -> None: ...

class CompareContent(_message.Message):
    __slots__ = ("request", "topic", "where", "log", "place", "base", "have", "marks", "fresh")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    HAVE_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    request: int
    topic: bytes
    where: _containers.RepeatedScalarFieldContainer[str]
    log: int
    place: int
    base: int
    have: bytes
    marks: _containers.RepeatedCompositeFieldContainer[Mark]
    fresh: bool
    def __init__(self, request: _Optional[int] = ..., topic: _Optional[bytes] = ..., where: _Optional[_Iterable[str]] = ..., log: _Optional[int] = ..., place: _Optional[int] = ..., base: _Optional[int] = ..., have: _Optional[bytes] = ..., marks: _Optional[_Iterable[_Union[Mark, _Mapping]]] = ..., fresh: bool = ...) -> None: ...

class ContentCompared(_message.Message):
    __slots__ = ("request", "topic", "log", "place", "newest", "order", "blocks", "marks", "more")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    request: int
    topic: bytes
    log: int
    place: int
    newest: int
    order: bytes
    blocks: _containers.RepeatedScalarFieldContainer[bytes]
    marks: _containers.RepeatedCompositeFieldContainer[Mark]
    more: bool
    def __init__(self, request: _Optional[int] = ..., topic: _Optional[bytes] = ..., log: _Optional[int] = ..., place: _Optional[int] = ..., newest: _Optional[int] = ..., order: _Optional[bytes] = ..., blocks: _Optional[_Iterable[bytes]] = ..., marks: _Optional[_Iterable[_Union[Mark, _Mapping]]] = ..., more: bool = ...) -> None: ...
