"""`require_one_folder`: that all ranks of a training see the folder of its checkpoints.

On two machines without a shared disk each rank would keep its own shards, and the first save would
call those of the others missing. Imports torch, which steplog itself never needs.
"""

import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from eventlog.errors import ConfigError
from snapshots.shards.ranks import Ranks

SEEN_WITHIN_S: Final = 5.0
"""How long a file may take to be seen on another machine: network file systems keep what they knew
of a folder for some seconds."""

_POLL_S: Final = 0.05


def require_one_folder(folder: Path, ranks: Ranks) -> None:
    """Raise `ConfigError` naming each rank's folder where one does not see rank 0's; a collective.

    Rank 0 puts a small file there, the others look for it, and it is taken away. Where rank 0
    cannot write, nothing is asked: the first save will say so.
    """
    if ranks.world_size == 1:
        return
    name = ranks.ask(lambda: _put_mark(folder))
    if name is None:
        return
    mark = folder / name
    try:
        told = ranks.gather((str(folder.absolute()), _is_seen(mark)))
    finally:
        if ranks.rank == 0:
            with suppress(OSError):
                mark.unlink()
    if not all(seen for _folder, seen in told):
        folders = "; ".join(f"rank {rank} has {one}" for rank, (one, _seen) in enumerate(told))
        blind = ", ".join(str(rank) for rank, (_folder, seen) in enumerate(told) if not seen)
        raise ConfigError(
            f"the ranks do not see one folder of checkpoints: what rank 0 puts there is not seen "
            f"by rank {blind} ({folders})",
            hint="give all ranks a folder on a disk that they share: "
            "ws.training(..., checkpoints=FOLDER)",
        )


def _put_mark(folder: Path) -> str | None:
    # Named as what a killed writer leaves, which retention takes away.
    name = f".{secrets.token_hex(8)}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    except OSError:
        return None
    return name


def _is_seen(mark: Path) -> bool:
    until = time.monotonic() + SEEN_WITHIN_S
    while True:
        if mark.exists():
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_S)
