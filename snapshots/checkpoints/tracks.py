"""The names of a folder's tracks: each has its own HEAD, sets and pins, and all share the objects.

A training's checkpoint sets lie in one track and its policy versions in another, so neither takes
the other's HEAD, and what they have in common is stored once. Pure.
"""

import re
from hashlib import sha256
from typing import Final

from snapshots.checkpoints.manifest import ID_PATTERN

_TRAININGS: Final = "trainings-"
_POLICIES: Final = "policies-"
_TRACK: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}")
_PLAIN: Final = re.compile(ID_PATTERN)
_CUT: Final = re.compile(r"--[0-9a-f]{16}")
_CUT_CHARACTERS: Final = 40
_PIN_ROOM: Final = 57
"""What is left of the 64 characters of a pin's name after `branch-`."""


def check_track(value: str) -> str:
    """`value`, a fit name for a track. Raises `ValueError`."""
    if not is_track(value):
        raise ValueError(f"a track's name must match [a-z0-9][a-z0-9_-]{{0,127}}, not {value!r}")
    return value


def is_track(value: str) -> bool:
    """Whether a track may have this name."""
    return _TRACK.fullmatch(value) is not None


def track_of_training(session_id: str) -> str:
    """The track of a training's checkpoint sets, from the id of its session."""
    return f"{_TRAININGS}{_slug(session_id)}"


def track_of_policies(session_id: str) -> str:
    """The track of a training's policy versions, from the id of its session."""
    return f"{_POLICIES}{_slug(session_id)}"


def is_of_training(track: str | None) -> bool:
    """Whether a track, None the one without a name, holds a training's checkpoint sets."""
    return track is not None and track.startswith(_TRAININGS)


def is_of_policies(track: str | None) -> bool:
    """Whether a track, None the one without a name, holds a training's policy versions."""
    return track is not None and track.startswith(_POLICIES)


def pin_of_branch(session_id: str) -> str:
    """The pin on the set that this training branched from, in the other training's track.

    Each branch has its own, so that letting one go leaves the set to the rest.
    """
    slug = _slug(session_id)
    return f"branch-{slug if len(slug) <= _PIN_ROOM else _cut(session_id, _PIN_ROOM - 18)}"


def _slug(session_id: str) -> str:
    # An id that ends as a cut one does is cut too: so no plain id is another's slug.
    if _PLAIN.fullmatch(session_id) and _CUT.fullmatch(session_id[-18:]) is None:
        return session_id
    return _cut(session_id, _CUT_CHARACTERS)


def _cut(session_id: str, characters: int) -> str:
    readable = re.sub(r"[^a-z0-9]+", "-", session_id.lower()).strip("-")[:characters]
    digest = sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{readable.rstrip('-') or 'x'}--{digest}"
