"""Paths into values as people read them: `$.orders[3].total`, `$.table[(1, 2)]`."""

import json


def path_step(key: object) -> str:
    """One step of a path: `.name` for a plain key, `[3]` for a position or any other key."""
    if type(key) is str:
        if key.isidentifier():
            return f".{key}"
        return f"[{json.dumps(key)}]"
    return f"[{key!r:.40}]"


def path_text(path: list[object]) -> str:
    """A whole path from `$`, given its keys and positions."""
    return "$" + "".join(map(path_step, path))
