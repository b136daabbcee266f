from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNUSED: _ClassVar[Status]
    OK: _ClassVar[Status]
    RESERVATION_REFUSED: _ClassVar[Status]
    RESOURCE_LIMIT_EXCEEDED: _ClassVar[Status]
    PERMISSION_DENIED: _ClassVar[Status]
    CONNECTION_FAILED: _ClassVar[Status]
    NO_RESERVATION: _ClassVar[Status]
    MALFORMED_MESSAGE: _ClassVar[Status]
    UNEXPECTED_MESSAGE: _ClassVar[Status]
UNUSED: Status
OK: Status
RESERVATION_REFUSED: Status
RESOURCE_LIMIT_EXCEEDED: Status
PERMISSION_DENIED: Status
CONNECTION_FAILED: Status
NO_RESERVATION: Status
MALFORMED_MESSAGE: Status
UNEXPECTED_MESSAGE: Status

class HopMessage(_message.Message):
    __slots__ = ("type", "peer", "reservation", "limit", "status")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RESERVE: _ClassVar[HopMessage.Type]
        CONNECT: _ClassVar[HopMessage.Type]
        STATUS: _ClassVar[HopMessage.Type]
    RESERVE: HopMessage.Type
    CONNECT: HopMessage.Type
    STATUS: HopMessage.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    type: HopMessage.Type
    peer: Peer
    reservation: Reservation
    limit: Limit
    status: Status
    def __init__(self, type: _Optional[_Union[HopMessage.Type, str]] = ..., peer: _Optional[_Union[Peer, _Mapping]] = ..., reservation: _Optional[_Union[Reservation, _Mapping]] = ..., limit: _Optional[_Union[Limit, _Mapping]] = ..., status: _Optional[_Union[Status, str]] = ...) -> None: ...

class StopMessage(_message.Message):
    __slots__ = ("type", "peer", "limit", "status")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CONNECT: _ClassVar[StopMessage.Type]
        STATUS: _ClassVar[StopMessage.Type]
    CONNECT: StopMessage.Type
    STATUS: StopMessage.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    type: StopMessage.Type
    peer: Peer
    limit: Limit
    status: Status
    def __init__(self, type: _Optional[_Union[StopMessage.Type, str]] = ..., peer: _Optional[_Union[Peer, _Mapping]] = ..., limit: _Optional[_Union[Limit, _Mapping]] = ..., status: _Optional[_Union[Status, str]] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("id", "addrs")
    ID_FIELD_NUMBER: _ClassVar[int]
    ADDRS_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    addrs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, id: _Optional[bytes] = ..., addrs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Reservation(_message.Message):
    __slots__ = ("expire", "addrs", "voucher")
    EXPIRE_FIELD_NUMBER: _ClassVar[int]
    ADDRS_FIELD_NUMBER: _ClassVar[int]
    VOUCHER_FIELD_NUMBER: _ClassVar[int]
    expire: int
    addrs: _containers.RepeatedScalarFieldContainer[bytes]
    voucher: bytes
    def __init__(self, expire: _Optional[int] = ..., addrs: _Optional[_Iterable[bytes]] = ..., voucher: _Optional[bytes] = ...) -> None: ...

class Limit(_message.Message):
    __slots__ = ("duration", "data")
    DURATION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    duration: int
    data: int
    def __init__(self, duration: _Optional[int] = ..., data: _Optional[int] = ...) -> None: ...

class Voucher(_message.Message):
    __slots__ = ("relay", "peer", "expiration")
    RELAY_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_FIELD_NUMBER: _ClassVar[int]
    relay: bytes
    peer: bytes
    expiration: int
    def __init__(self, relay: _Optional[bytes] = ..., peer: _Optional[bytes] = ..., expiration: _Optional[int] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("public_key", "payload_type", "payload", "signature")
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    public_key: bytes
    payload_type: bytes
    payload: bytes
    signature: bytes
    def __init__(self, public_key: _Optional[bytes] = ..., payload_type: _Optional[bytes] = ..., payload: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Identify(_message.Message):
    __slots__ = ("publicKey", "listenAddrs", "protocols", "observedAddr", "protocolVersion", "agentVersion")
    PUBLICKEY_FIELD_NUMBER: _ClassVar[int]
    LISTENADDRS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    OBSERVEDADDR_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLVERSION_FIELD_NUMBER: _ClassVar[int]
    AGENTVERSION_FIELD_NUMBER: _ClassVar[int]
    publicKey: bytes
    listenAddrs: _containers.RepeatedScalarFieldContainer[bytes]
    protocols: _containers.RepeatedScalarFieldContainer[str]
    observedAddr: bytes
    protocolVersion: str
    agentVersion: str
    def __init__(self, publicKey: _Optional[bytes] = ..., listenAddrs: _Optional[_Iterable[bytes]] = ..., protocols: _Optional[_Iterable[str]] = ..., observedAddr: _Optional[bytes] = ..., protocolVersion: _Optional[str] = ..., agentVersion: _Optional[str] = ...) -> None: ...

class HolePunch(_message.Message):
    __slots__ = ("type", "ObsAddrs")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CONNECT: _ClassVar[HolePunch.Type]
        SYNC: _ClassVar[HolePunch.Type]
    CONNECT: HolePunch.Type
    SYNC: HolePunch.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OBSADDRS_FIELD_NUMBER: _ClassVar[int]
    type: HolePunch.Type
    ObsAddrs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, type: _Optional[_Union[HolePunch.Type, str]] = ..., ObsAddrs: _Optional[_Iterable[bytes]] = ...) -> None: ...
