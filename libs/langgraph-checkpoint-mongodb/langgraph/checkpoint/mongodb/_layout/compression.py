"""What a growing value adds is stored compressed where that spares something.

Serialized messages repeat the names of their fields and classes, some 200 bytes in each, and
so do checkpoints. Of a chat a third of the bytes goes, even if its text cannot be compressed.
"""

from __future__ import annotations

import zlib

__all__ = ["COMPRESSED_BYTES", "DICTIONARY", "compress", "decompress"]

COMPRESSED_BYTES = 64 * 1024
"""What is longer is stored as it is: it would take the client milliseconds."""

DICTIONARY = (
    b"\x05\x94\xbblangchain_core.messages.tool\xabToolMessage\x88\xa7content\xda\x01"
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa4tool\xa4name\xa2id\xd9$"
    b"\xactool_call_id\xa8artifact\xc0\xa6status\xa7success\xb3model_validate_json"
    b"\xaatool_calls\x91\x84\xa4name\xa4args\x81\xa2id\xa9tool_call\xa4type\xb2invalid_tool_calls\x90"
    b"\xaeusage_metadata\x83\xacinput_tokens\xadoutput_tokens\xactotal_tokens"
    b"\x91\xc8\x02\x05\x94\xbclangchain_core.messages.human\xacHumanMessage\x86\xa7content\xda\x01"
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0\xa2id\xd9$"
    b"\xb3model_validate_json"
    b"\xc8\x02\x05\x94\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xda\x01"
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa2ai\xa4name\xc0\xa2id\xd9$"
    b"\xaatool_calls\x90\xb2invalid_tool_calls\x90\xaeusage_metadata\xc0\xb3model_validate_json"
    b"\x98\x93\xa9__start__\xa8messages\xafbranch:to:model\x93\x92\xcc\x92\xcf\x00\x92\xcc\x92\xcf\x00"
    b"\x92\x93\x00\x01\x02\x93\x00\x01\x01\x83\xa9__input__\x92\x90\x90\xa9__start__\x92\x91\x00\x91"
    b"\x02\xa5model\x92\x91\x02\x91\x00\x91\x01\x92\x90\x90\x82\xa1v\x04\xa2ts\xd9 "
    b"2026-01-01T00:00:00.000000+00:00\x91\x94\x01\xc4\x03\xdc\x00\x91\x93\x04\xce\x00\x01\xc4\n\xc4\x00"
)
"""What zlib may refer to: how LangGraph's serializer writes messages, and a packed checkpoint.

Stored bytes cannot be read without it: it never changes.
"""

_LEAST = 128


def compress(data: bytes) -> bytes | None:
    """Compress bytes with zlib; None if they are better stored as they are."""
    if not _LEAST <= len(data) <= COMPRESSED_BYTES:
        return None
    writer = zlib.compressobj(zdict=DICTIONARY)
    compressed = writer.compress(data) + writer.flush()
    return compressed if len(compressed) < len(data) * 7 // 8 else None


def decompress(data: bytes) -> bytes:
    """Restore bytes that were compressed.

    Raises:
        ValueError: This library has not compressed them: they are no zlib stream, not a whole
            one, or longer than `COMPRESSED_BYTES`.
    """
    reader = zlib.decompressobj(zdict=DICTIONARY)
    try:
        restored = reader.decompress(data, COMPRESSED_BYTES)
        if not reader.eof:
            # Only the end of the stream may be left, and it must be that.
            restored += reader.decompress(reader.unconsumed_tail, 1)
    except zlib.error as error:
        raise ValueError(f"the bytes are no zlib stream of this library: {error}") from None
    if not reader.eof or reader.unused_data or len(restored) > COMPRESSED_BYTES:
        raise ValueError(f"the zlib stream is cut, or longer than {COMPRESSED_BYTES:,} bytes")
    return restored
