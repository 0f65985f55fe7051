"""The names of a folder's lines: each has its own HEAD, sets and pins, and all share the objects.

A training's checkpoint sets lie in one line and its policy versions in another, so neither takes
the other's HEAD, and what they have in common is stored once. Pure.
"""

import re
from hashlib import sha256
from typing import Final

_LINE: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}")
_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_CUT: Final = re.compile(r"--[0-9a-f]{16}")
_CUT_CHARACTERS: Final = 40


def check_line(value: str) -> str:
    """`value`, a fit name for a line. Raises `ValueError`."""
    if not is_line(value):
        raise ValueError(f"a line's name must match [a-z0-9][a-z0-9_-]{{0,127}}, not {value!r}")
    return value


def is_line(value: str) -> bool:
    """Whether a line may have this name."""
    return _LINE.fullmatch(value) is not None


def line_of_training(session_id: str) -> str:
    """The line of a training's checkpoint sets, from the id of its session."""
    return f"trainings-{_slug(session_id)}"


def line_of_policies(session_id: str) -> str:
    """The line of a training's policy versions, from the id of its session."""
    return f"policies-{_slug(session_id)}"


def _slug(session_id: str) -> str:
    # An id that ends as a cut one does is cut too: so no plain id is another's slug.
    if _PLAIN.fullmatch(session_id) and _CUT.fullmatch(session_id[-18:]) is None:
        return session_id
    readable = re.sub(r"[^a-z0-9]+", "-", session_id.lower()).strip("-")[:_CUT_CHARACTERS]
    digest = sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{readable.rstrip('-') or 'x'}--{digest}"
