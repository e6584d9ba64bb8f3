"""A DuckDB file changed byte by byte, with the checksums that DuckDB expects."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HEADER, HEADERS = 4096, 3 * 4096
SIZE = HEADER + 40  # where the second header has the bytes of a block
WORD = (1 << 64) - 1


def checksum(content: bytes) -> int:
    """What stands in the first eight bytes of a block."""
    found = 5381
    for word in struct.unpack(f"<{len(content) // 8}Q", content):
        found ^= word * 0xBF58476D1CE4E5B9 & WORD
    return found


def number(value: int, length: int) -> bytes:
    """A positive integer as DuckDB writes statistics: seven bits a byte, filled up to a length."""
    groups = [value >> 7 * i & 0x7F for i in range(length)]
    return bytes(group | (0x80 if i < length - 1 else 0) for i, group in enumerate(groups))


def misstated(path: Path, value: int, said: int) -> int:
    """Let the statistics of a file say ``said`` where they say ``value``; how often they do now."""
    content = bytearray(path.read_bytes())
    length = value.bit_length() // 7 + 1
    true, false = number(value, length), number(said, length)
    places = content.count(true)
    content[:] = content.replace(true, false)
    (block,) = struct.unpack_from("<Q", content, SIZE)
    for begin in range(HEADERS, len(content), block):
        struct.pack_into("<Q", content, begin, checksum(bytes(content[begin + 8 : begin + block])))
    path.write_bytes(content)
    return places
