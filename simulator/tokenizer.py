"""Fast, deterministic stand-in for a tokenizer: four bytes of UTF-8 text are one token.

Tokens are packed as little-endian unsigned 32-bit numbers in one `bytes` object, which is what block hashing
needs and what costs nothing to slice. Each chat message is its role's marker, its content padded to whole
tokens, and an end marker; so a conversation that extends another keeps all of its tokens. Markers use the
byte 0xFF, which UTF-8 text never contains.
"""

import array
import sys
from collections.abc import Iterable, Sequence

import xxhash

TOKEN_BYTES = 4
MAX_TOKEN_ID = 2**32 - 1

END = b"\xff\xff\xff\x00"
_TOOLS = b"\xff\xff\xff\x01"
_OTHER_ROLE = b"\xff\xff\xff\x02"
_ROLES = {
    "system": b"\xff\xff\xff\x03",
    "developer": b"\xff\xff\xff\x04",
    "user": b"\xff\xff\xff\x05",
    "assistant": b"\xff\xff\xff\x06",
    "tool": b"\xff\xff\xff\x07",
}
_MEDIA_MARK = b"\xff\xff"
MEDIA_TOKENS = 225
"""Tokens of an image, video or sound: what a 640 x 360 image takes at 1024 pixels per token."""


def encode_text(text: str) -> bytes:
    """Return the tokens of plain text; the last one is padded with zero bytes."""
    data = text.encode()
    return data + bytes(-len(data) % TOKEN_BYTES)


def decode(tokens: bytes) -> str:
    """Return the text of `tokens` without padding; what is not text becomes replacement characters."""
    return tokens.rstrip(b"\0").decode(errors="replace")


def from_ids(ids: Sequence[int]) -> bytes:
    """Pack token ids; OverflowError when one is outside 0..`MAX_TOKEN_ID`, TypeError when not an integer."""
    packed = array.array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def to_ids(tokens: bytes) -> list[int]:
    """Unpack tokens into ids."""
    packed = array.array("I", tokens)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tolist()


def encode_media(reference: str) -> bytes:
    """Return placeholder tokens that are equal for equal references (URLs or inline data)."""
    digest = xxhash.xxh32_intdigest(reference.encode()).to_bytes(4, "little")
    return (_MEDIA_MARK + digest[:2]) * MEDIA_TOKENS


def encode_chat(messages: Iterable[tuple[str, bytes]], tools: bytes = b"") -> bytes:
    """Return the prompt of a chat: `tools` as text, each (role, content tokens), the assistant's marker."""
    parts = [_TOOLS, tools, bytes(-len(tools) % TOKEN_BYTES), END] if tools else []
    for role, content in messages:
        marker = _ROLES.get(role)
        parts.append(marker if marker is not None else _OTHER_ROLE + encode_text(role))
        parts.append(content)
        parts.append(END)
    parts.append(_ROLES["assistant"])
    return b"".join(parts)


def chain_root(adapter: str, salt: str) -> int:
    """Return the hash that precedes the first block: prompts of different adapters or salts share nothing."""
    return xxhash.xxh3_64_intdigest(f"{adapter}\0{salt}".encode())


def chain_hashes(tokens: bytes, block_size: int, parent: int) -> list[int]:
    """Return the chained hash of every full block of `block_size` tokens; `parent` precedes the first."""
    width = block_size * TOKEN_BYTES
    view = memoryview(tokens)
    digest = xxhash.xxh3_64_intdigest
    hashes = []
    for start in range(0, len(tokens) - width + 1, width):
        parent = digest(view[start : start + width], parent)
        hashes.append(parent)
    return hashes
