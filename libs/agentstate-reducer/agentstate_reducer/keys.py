"""Telling turns apart.

A turn is known by its namespace, its id and its content. The digest must come out the same before a
message was stored and after it was read again, so only what every serializer keeps goes in.
"""

from __future__ import annotations

import hashlib
from typing import Any

from .messages import (
    AI,
    RESULTS,
    answered_call,
    call_text,
    content_of,
    field,
    role_of,
    stable_json,
    tool_calls,
)

_SEPARATOR = "\x1f"


def namespace_text(namespace: Any) -> str:
    """Return a text that stands for a namespace.

    Args:
        namespace: Any value; a tuple and a list of the same parts are the same namespace.

    Returns:
        Its canonical text.
    """
    return stable_json(namespace)


def turn_digest(message: Any, namespace_as_text: str) -> str:
    """Return the digest of a turn: equal for the same namespace, id, role and content.

    Args:
        message: A message of any supported shape.
        namespace_as_text: Its namespace, as `namespace_text` writes it.

    Returns:
        32 hexadecimal digits. Messages without an id share one when they say the same.
    """
    role = role_of(message)
    content = content_of(message)
    parts = [
        namespace_as_text,
        str(field(message, "id") or ""),
        role,
        content if isinstance(content, str) else stable_json(content),
    ]
    if role == AI:
        parts.extend(call_text(call) for call in tool_calls(message))
    elif role in RESULTS:
        parts.append(str(answered_call(message)))
    return digest(*parts)


def digest(*parts: str) -> str:
    """Return a digest of texts in their order.

    Args:
        *parts: The texts.

    Returns:
        32 hexadecimal digits.
    """
    joined = _SEPARATOR.join(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(joined, digest_size=16).hexdigest()
