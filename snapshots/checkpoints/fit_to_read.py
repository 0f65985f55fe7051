"""Whether what is about to be kept can be read back: asked before anything of it is written.

A manifest that is there and cannot be read stops retention and `gc` of the whole folder, as nobody
knows what it needs. Used by the store before each commit, by the shard writer before it stores the
first object, and by imports.
"""

from typing import Final

from eventlog.errors import CheckpointError
from snapshots.checkpoints.fields import DIMENSIONS_MAX, StatePath
from snapshots.checkpoints.manifest import (
    NAME_CHARACTERS_MAX,
    Manifest,
    decode_manifest,
    encode_manifest,
)

_SHOWN_CHARACTERS: Final = 64


def require_fit_name(name: str, path: StatePath | None = None) -> str:
    """`name`, that of a tensor or value at `path` in the state. Raises `CheckpointError`."""
    shown = f"{name[:_SHOWN_CHARACTERS]!r}{'...' if len(name) > _SHOWN_CHARACTERS else ''}"
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise CheckpointError(
            f"the name {shown} has {len(name)} characters; 1 to {NAME_CHARACTERS_MAX} are kept",
            hint="rename it",
            tensor=name[:NAME_CHARACTERS_MAX],
        )
    if path is not None and len(path) > DIMENSIONS_MAX:
        raise CheckpointError(
            f"{shown} is nested {len(path)} levels deep; at most {DIMENSIONS_MAX} are kept",
            hint="save it flatter, or what is no tensor as one value of bytes",
            tensor=name,
        )
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise CheckpointError(
            f"the name {shown} is no text: it holds half a character (a lone surrogate)",
            hint="rename it",
            tensor=name,
        ) from None
    return name


def encode_readable(manifest: Manifest) -> bytes:
    """The bytes of manifest.json, which `decode_manifest` takes.

    Raises `CheckpointError` saying what would not be read.
    """
    try:
        data = encode_manifest(manifest)
        decode_manifest(data)
    except (CheckpointError, UnicodeEncodeError) as error:
        why = error.message if isinstance(error, CheckpointError) else str(error)
        raise CheckpointError(
            f"checkpoint {manifest.id} could not be read back, and was not kept: {why}",
            hint="change what it names in the state, or set the clock of this machine where it "
            "names created_ns",
        ) from error
    return data
