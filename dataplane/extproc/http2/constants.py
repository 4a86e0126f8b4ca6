"""Numbers of RFC 9113 and of gRPC over HTTP/2, and the layouts they are packed with."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER_SIZE: Final = 9
MESSAGE_PREFIX_SIZE: Final = 5

DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20

STREAM_ID_MASK: Final = 0x7FFF_FFFF
MAX_WINDOW: Final = 0x7FFF_FFFF
DEFAULT_WINDOW: Final = 65_535
DEFAULT_MAX_FRAME_SIZE: Final = 16_384
LARGEST_MAX_FRAME_SIZE: Final = 16_777_215

SETTINGS_HEADER_TABLE_SIZE: Final = 0x1
SETTINGS_ENABLE_PUSH: Final = 0x2
SETTINGS_MAX_CONCURRENT_STREAMS: Final = 0x3
SETTINGS_INITIAL_WINDOW_SIZE: Final = 0x4
SETTINGS_MAX_FRAME_SIZE: Final = 0x5
SETTINGS_MAX_HEADER_LIST_SIZE: Final = 0x6

FRAME: Final = Struct(">HBBBL")
"""Frame header: length >> 8, length & 255, type, flags, stream id (the reserved bit included)."""

MESSAGE_FRAME: Final = Struct(">HBBBLBL")
"""Frame header of a DATA frame that holds one whole message, and the message's prefix: flag, length."""

MESSAGE_PREFIX: Final = Struct(">BL")
SETTING: Final = Struct(">HL")
WORD: Final = Struct(">L")
GOAWAY_HEAD: Final = Struct(">LL")


class ErrorCode(IntEnum):
    """RFC 9113 section 7."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class GrpcStatus(IntEnum):
    """The status codes the transport itself answers with."""

    OK = 0
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
