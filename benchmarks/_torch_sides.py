"""Checkpoints saved and loaded by torch alone and by steplog, each in a fresh folder."""

from pathlib import Path
from typing import Any


class Bench:
    """Fresh folders, and saving and loading as each side does it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def fresh(self) -> Path:
        """A folder that holds nothing."""
        self._made += 1
        path = self._folder / str(self._made)
        path.mkdir()
        return path

    def ours(
        self, state: dict[str, Any], path: Path, *, step: int = 1, delta: bool = False
    ) -> Path:
        """Saved by `ShardWriter`."""
        from torch.distributed.checkpoint.state_dict_saver import save

        from snapshots.shard_writer import ShardWriter

        save(state, storage_writer=ShardWriter(path, step=step, delta=delta))
        return path

    def dcp(self, state: dict[str, Any], path: Path) -> Path:
        """Saved by torch's writer."""
        from torch.distributed.checkpoint.filesystem import FileSystemWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        save(state, storage_writer=FileSystemWriter(path))
        return path

    def dcp_zstd(self, state: dict[str, Any], path: Path) -> Path:
        """Saved by torch's writer with its own zstd."""
        from torch.distributed.checkpoint._extension import ZStandard
        from torch.distributed.checkpoint.filesystem import FileSystemWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        save(state, storage_writer=FileSystemWriter(path, _extensions=[ZStandard()]))
        return path

    def load_ours(self, state: dict[str, Any], path: Path, **which: Any) -> None:
        """Into `state`, by `ShardReader`."""
        from torch.distributed.checkpoint.state_dict_loader import load

        from snapshots.shard_reader import ShardReader

        load(state, storage_reader=ShardReader(path, **which))

    def load_dcp(self, state: dict[str, Any], path: Path) -> None:
        """Into `state`, by torch's reader."""
        from torch.distributed.checkpoint.filesystem import FileSystemReader
        from torch.distributed.checkpoint.state_dict_loader import load

        load(state, storage_reader=FileSystemReader(path))


def size_of(path: Path) -> int:
    """Bytes of all files below `path`."""
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())


def raw_size(value: Any) -> int:
    """Bytes of all tensors in a nested state."""
    if isinstance(value, dict):
        return sum(raw_size(one) for one in value.values())
    return int(getattr(value, "nbytes", 0))
