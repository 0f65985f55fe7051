"""The examples on torch in the pages run as they are written, one after the other."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from eventlog.errors import FencedError, SteplogError
from replay.workspace import open_workspace
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.manifest import FORMAT, MANIFEST_BYTES_MAX
from snapshots.checkpoints.part_writer import PACK_BYTES, PACKED_BYTES_MAX, PART_BYTES
from snapshots.tensor_codec import BLOCK_BYTES, Encoding
from snapshots.training_state import random_for_rank
from tests.support.scale import scaled
from tests.support.sources import ROOT

FLAGS = re.MULTILINE | re.DOTALL
WARNINGS = [
    *("-W", "error", "-W", "ignore:torch.distributed is"),
    *("-W", "ignore:TypedStorage is deprecated"),  # what torch 2.6 writes its folders with
]
FULLY_SHARD = "from torch.distributed.fsdp import fully_shard"
WRAPPED = ["DistributedDataParallel(model)", "fully_shard(model)"][: scaled(1, 2)]
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"

PAGE = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
TRAINING = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")


def blocks_of(page: str) -> list[str]:
    """The Python blocks of a page that need torch."""
    return re.findall(r"^<!-- torch -->\n```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def run_block(block: str, folder: Path) -> None:
    """Run it in a process of its own, as a reader would."""
    done = subprocess.run(
        [sys.executable, *WARNINGS, "-c", block],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr


def test_the_examples_run(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")
    blocks = blocks_of(PAGE)
    assert len(blocks) >= 2
    for block in blocks:
        run_block(block, tmp_path)
    assert sorted(path.name[:12] for path in (tmp_path / "ckpt" / "sets").iterdir()) == [
        "000000000200",
        "000000000202",
        "000000000203",
        "000000000204",
    ]


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    for encoding in Encoding:
        assert f"`{encoding.value}`" in PAGE
    assert f"| `format` | {FORMAT} |" in PAGE
    assert f"at most {MANIFEST_BYTES_MAX >> 20} MiB" in PAGE
    assert f"`parts` of up to {PART_BYTES >> 20} MiB" in PAGE
    assert f"{PACKED_BYTES_MAX >> 10} KiB share objects of up to {PACK_BYTES >> 20} MiB" in PAGE
    assert f"each block of {BLOCK_BYTES >> 20} MiB" in PAGE


def test_the_training_of_the_page_goes_on_when_it_is_run_again(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")
    block = blocks_of(TRAINING)[0]
    told = block + "\nprint(step, order.epoch, desk)\nassert (step, desk['orders']) == WANTED\n"
    stopped = "import sys\nWANTED = {}\n"
    run_block(stopped.format((14, 140)) + told, tmp_path)
    # The second run restores the set of step 12, two batches and their orders back.
    assert "while step < 14:" in block
    again = told.replace("while step < 14:", "while step < 20:")
    run_block(stopped.format((20, 200)) + again, tmp_path)


def test_the_branches_adopted_folders_and_policy_versions_of_the_page(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")
    blocks = blocks_of(TRAINING)[1:]
    assert len(blocks) == 2
    for block in blocks:
        run_block(block, tmp_path)


SEEN = """\
        with open(f"taken-{rank}", "a", encoding="utf-8") as taken:
            print(json.dumps([rank, step, batch]), file=taken)
"""


@pytest.mark.parametrize("wrap", WRAPPED)
def test_the_script_of_two_ranks_goes_on_when_it_is_run_again(tmp_path: Path, wrap: str) -> None:
    """A newcomer gave SampleOrder no rank, which stood on no page: both took every sample."""
    torch = pytest.importorskip("torch", reason="torch is not installed: trainings not shown")
    if wrap.startswith("fully_shard") and not hasattr(torch.cpu.Stream, "record_event"):
        pytest.skip("FSDP2 of this torch runs no model on CPUs")
    found = re.search(r"<!-- torchrun: train.py -->\n```python\n(.*?)^```$", TRAINING, FLAGS)
    assert found is not None
    script = found[1].replace("DistributedDataParallel(model)", wrap)
    script = script.replace("model = fully_shard", "fully_shard")
    script = script.replace("import steplog\n", f"import steplog\n{FULLY_SHARD}\n", 1)
    assert "        loss = model(" in script
    script = "import json\n" + script.replace(
        "        loss = model(", f"{SEEN}        loss = model("
    )
    assert "while step < 8:" in script
    first = ran_by_torchrun(script.replace("while step < 8:", "while step < 6:"), tmp_path)
    again = ran_by_torchrun(script, tmp_path)
    assert sorted({step for _, step, _ in again}) == [4, 5, 6, 7], "the set of step 4 was not it"
    assert [one for one in first if one[1] >= 4] == [one for one in again if one[1] < 6]
    epoch = [sample for _, step, batch in first for sample in batch if step < 6]
    assert sorted(epoch) == list(range(60)), "the ranks do not share the samples"


def ran_by_torchrun(script: str, folder: Path) -> list[list[Any]]:
    """What each rank took at each step, sorted.

    Each rank tells it in a file of its own: lines that two processes print on one pipe can mix.
    """
    for told in folder.glob("taken-*"):
        told.unlink()
    (folder / "train.py").write_text(script, encoding="utf-8")
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]  # on a free port
    done = subprocess.run(
        [sys.executable, "-m", *launch, "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": LOOPBACK},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = sorted(folder.glob("taken-*"))
    assert len(told) == 2
    return sorted(json.loads(line) for file in told for line in file.read_text().splitlines())


PUBLISHING = """
import torch, steplog
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
with steplog.open_workspace("runs/") as ws, ws.training("run-1") as run:
    for step in range(40, 47):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        label = run.publish_policy(step, model)
        with ws.record(environment="desk", training="run-1", policy=label):
            pass
    run.checkpoint(step, model=model, optimizer=optimizer)
"""


def test_the_readmes_lines_on_checkpoints_run(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")
    run_block(PUBLISHING, tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^steplog (?:checkpoint|policy|sessions -).*$", readme, re.MULTILINE)
    assert len(lines) == 6
    for line in lines:
        _, *arguments = shlex.split(line, comments=True)
        done = subprocess.run(
            [sys.executable, "-m", "replay.cli", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "STEPLOG_WORKSPACE": "runs"},
        )
        assert (done.returncode, bool(done.stdout)) == (0, True), f"{line}\n{done.stderr}"
    assert (tmp_path / "model" / "model.safetensors").exists()


SHOWN_ELSEWHERE = ("the save of step", "a rank is gone", "the ranks do not see one folder")


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_what_goes_wrong_is_told_in_the_words_of_the_page(tmp_path: Path) -> None:
    """Each error is brought about; those of a full disk and of several ranks in other tests."""
    torch = pytest.importorskip("torch", reason="torch is not installed: trainings not shown")
    model, other = torch.nn.Linear(4, 1), torch.nn.Linear(5, 1)
    said: list[str] = []

    def refused(call: Callable[[], object]) -> None:
        with pytest.raises(SteplogError) as caught:
            call()
        said.append(f"`{type(caught.value).__name__}`: {caught.value.message}")

    with open_workspace(tmp_path) as ws, open_workspace(tmp_path) as second:
        with ws.training("run-1") as run:
            session = ws.record("desk", environment="desk", state={"n": 0}, training="run-1")
            set_id = run.checkpoint(12, model=model).wait().id
            session.release()
        with suppress(FencedError), ws.training("run-1") as run:
            refused(lambda: run.checkpoint(12, model=model))
            run.restore_latest(model=model)
            resumed = ws.resume("desk", state=lambda: {"n": 9})
            refused(lambda: resumed.call("add", {}).__enter__())
            refused(lambda: run.checkpoint(1, model=model))
            refused(lambda: run.restore_latest(model=other))
            refused(lambda: run.restore_latest(model=torch.nn.Sequential(model)))
            hook = model.register_load_state_dict_pre_hook(lambda *_: 1 // 0)
            refused(lambda: run.restore_latest(model=model))
            refused(lambda: run.checkpoint(13, model=model))
            hook.remove()
            run.restore_latest(model=model)
            with second.training("run-1"):
                refused(lambda: run.publish_policy(1, model))
        with suppress(FencedError), ws.training("run-1") as run:
            run.restore_latest(model=model)
            with second.training("run-1"):
                pass
            refused(lambda: run.publish_policy(1, model))
        store = CheckpointStore(tmp_path / "checkpoints", "trainings-run-1")
        for path in (tmp_path / "checkpoints" / "objects").glob("*/*"):
            path.write_bytes(bytes(path.stat().st_size))
        with ws.training("run-1") as run:
            refused(lambda: run.restore_latest(model=model))
            manifest = store.set_folder(store.find_checkpoint(checkpoint=set_id)) / "manifest.json"
            manifest.write_bytes(b"{}")
            refused(lambda: run.restore_latest(model=model))
            manifest.unlink()
            refused(lambda: run.restore_latest(model=model))
    refused(lambda: random_for_rank([b"", b""], 0, 1, None))

    (table,) = re.findall(r"^## What can go wrong\n(.*?)^## ", TRAINING, FLAGS)
    for row in re.findall(r"^\| [^|]+ \| (`\w+Error`: .*?) - ", table, FLAGS):
        kind, *phrases = re.findall(r"`(.*?)`", row)
        for phrase in phrases:
            words = re.sub(r"<[^>]*>", "\0", phrase)
            words = re.sub(r"\d+", r"\\d+", re.escape(words)).replace("\0", ".+")
            told = [one for one in said if re.search(f"`{kind}`: .*{words}", one)]
            if any(one in phrase for one in SHOWN_ELSEWHERE):
                continue
            assert told, f"{phrase}: {said}"
