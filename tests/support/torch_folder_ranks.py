"""Folders that torch's own writer makes of 4 ranks, imported, and loaded by other numbers of ranks.

`python -m tests.support.torch_folder_ranks FOLDER`; what it finds wrong ends it with a traceback.
"""

import sys
import warnings
from pathlib import Path

import torch
import torch._dynamo  # FSDP loads it; once here, not once in each rank
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.state_dict import set_state_dict

from snapshots.checkpoint_store import CheckpointStore
from snapshots.interchange.torch_import import import_dcp_folder
from snapshots.shard_reader import ShardReader
from tests.support.torch_ranks import (
    SAVE_WORLD,
    Rank,
    _model,
    _spread,
    _state,
    _whole,
    learn,
    run_world,
)
from tests.support.torch_states import bytes_of, emptied, fingerprint

LOAD_WORLDS = (1, 2)


def main(folder: Path) -> None:
    """Save by 4 ranks with torch, import without ranks, load by 1 and 2, bit for bit."""
    warnings.simplefilter("ignore")
    expected = folder / "expected"

    def save_as_four(rank: int) -> None:
        model, optimizer = _model(sharded=True)
        learn(model, torch.arange(8))
        optimizer.step()
        state = _state(model, optimizer) | _spread(SAVE_WORLD)
        dcp.save(state, storage_writer=FileSystemWriter(folder / "torch", thread_count=2))
        whole = fingerprint(_whole(state))
        if rank == 0:
            expected.write_text(repr(whole))

    def load_as(world: int) -> Rank:
        def load_rank(rank: int) -> None:
            model, optimizer = _model(sharded=world > 1)
            with torch.no_grad():
                for one in model.parameters():
                    one.fill_(9)
            rest = _spread(world)
            for one in rest["spread"].values():
                bytes_of(one.to_local()).fill_(1)
            for name in ("alike", "own", "values"):
                rest[name] = emptied(rest[name])
            state = _state(model, optimizer) | rest
            dcp.load(state, storage_reader=ShardReader(folder / "ckpt"))
            set_state_dict(
                *(model, optimizer),
                model_state_dict=state["model"],
                optim_state_dict=state["optimizer"],
            )
            found = _state(model, optimizer) | {name: state[name] for name in rest}
            assert repr(fingerprint(_whole(found))) == expected.read_text(), f"world {world}"

        return load_rank

    run_world(SAVE_WORLD, folder, save_as_four)
    assert len(list((folder / "torch").glob("*.distcp"))) > SAVE_WORLD
    done = import_dcp_folder(CheckpointStore(folder / "ckpt"), folder / "torch", step=5)
    assert done.checkpoint.training_step == 5
    for world in LOAD_WORLDS:
        run_world(world, folder, load_as(world))
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
