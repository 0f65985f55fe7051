"""`steplog checkpoint` on what dcp.save wrote."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

from replay.cli.main import run_command  # noqa: E402
from snapshots.checkpoint_retention import Retention, apply_retention  # noqa: E402
from snapshots.checkpoint_store import CheckpointStore  # noqa: E402
from snapshots.checkpoints.survey import list_unfinished  # noqa: E402
from snapshots.shard_writer import ShardWriter  # noqa: E402
from tests.support.sources import ROOT  # noqa: E402
from tests.support.torch_states import fingerprint, load_again, odd_state, save  # noqa: E402


def test_a_folder_of_dcp_save_is_listed_checked_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = odd_state()
    state["w"] = torch.randn(200_000)
    first = save(state, ShardWriter(tmp_path, step=1))
    state["w"][7] += 1
    second = save(state, ShardWriter(tmp_path, step=2, delta=True))

    def run(*arguments: str) -> tuple[int, list[dict[str, object]]]:
        capsys.readouterr()
        code = run_command(["--json", "-q", "checkpoint", *arguments, "--folder", str(tmp_path)])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    code, listed = run("list")
    assert (code, [row["id"] for row in listed]) == (0, [first.id, second.id])
    code, checked = run("check")
    assert (code, [row["verdict"] for row in checked]) == (0, ["ok", "ok"])
    code, (row,) = run("diff", "step:1", "step:2", "--values")
    assert (code, row["name"], row["numbers_changed"]) == (1, "w", 1)
    assert run("diff", "HEAD", second.id) == (0, [])
    assert run("head", first.id)[0] == 0
    assert fingerprint(load_again(state, tmp_path)) != fingerprint(state)


KILLED = """
import os, signal, sys
import torch
from snapshots.checkpoint_retention import Retention
from snapshots.checkpoints.object_folder import ObjectFolder
from snapshots.shard_saver import ShardSaver

keep_objects = ObjectFolder.keep_objects

def keep_and_die(self, written):
    keep_objects(self, list(written)[:1])
    os.kill(os.getpid(), signal.SIGKILL)

saver = ShardSaver(sys.argv[1], retention=Retention(2))
ObjectFolder.keep_objects = keep_and_die
saver.save_async({f"t{number}": torch.randn(50_000) for number in range(4)}, step=3).wait()
"""


def test_a_save_killed_after_its_first_object_leaves_an_older_head_that_loads(
    tmp_path: Path,
) -> None:
    """`latest` was moved and the old one purged before the data was there (KempnerForge #102)."""
    state = {f"t{number}": torch.randn(50_000) for number in range(4)}
    store = CheckpointStore(tmp_path)
    refs = [save(state, ShardWriter(store, step=step)) for step in (1, 2)]
    objects = len(list(store.objects.list_objects()))
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(store.objects.list_objects())) > objects
    assert store.head() == refs[1]
    assert apply_retention(store, Retention(2)).checkpoints == ()
    assert fingerprint(load_again(state, tmp_path)) == fingerprint(state)
    (half,) = list_unfinished(store)
    assert half.name.startswith("000000000003-")
