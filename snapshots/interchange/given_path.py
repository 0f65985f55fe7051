"""What a caller names to import: a path that is none is a mistake in the call, and no damage."""

from pathlib import Path

from eventlog.errors import ConfigError
from snapshots.checkpoints.file_faults import is_there, refuse_broken_link


def require_given(path: Path) -> None:
    """Raise `ConfigError` where nothing has this name, `CheckpointError` where that is not known.

    A link that leads nowhere is named right: the disk behind it may not be mounted.
    """
    if not is_there(path, follow_links=True):
        refuse_broken_link(path)
        raise ConfigError(f"there is nothing at {path}", hint="check the path")
