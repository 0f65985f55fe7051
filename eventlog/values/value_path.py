"""Paths into values as people read them: `$.orders[3].total`, `$.table[(1, 2)]`."""

import json
from typing import Any


def path_step(key: object) -> str:
    """One step of a path: `.name` for a plain key, `[3]` for a position or any other key."""
    if type(key) is str:
        return f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]"
    return f"[{key_text(key)}]"


def key_text(key: Any) -> str:
    """A key or set element in at most some 40 characters, whatever its own repr does."""
    kind = type(key)
    if kind is int:
        return str(key) if abs(key) < 10**30 else "<a long int>"
    if kind in (str, bytes, float, bool, type(None)):
        return f"{key!r:.40}"
    if kind is tuple:
        inner = ", ".join(map(key_text, key))
        return f"({inner:.40})"
    return f"<{kind.__name__}>"
