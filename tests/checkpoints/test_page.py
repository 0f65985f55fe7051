"""The examples on torch in the pages run as they are written, one after the other."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from snapshots.checkpoints.manifest import FORMAT, MANIFEST_BYTES_MAX
from snapshots.checkpoints.part_writer import PACK_BYTES, PACKED_BYTES_MAX, PART_BYTES
from snapshots.tensor_codec import BLOCK_BYTES, Encoding
from tests.support.sources import ROOT

PAGE = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
TRAINING = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")


def blocks_of(page: str) -> list[str]:
    """The Python blocks of a page that need torch."""
    return re.findall(r"^<!-- torch -->\n```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def run_block(block: str, folder: Path) -> None:
    """Run it in a process of its own, as a reader would."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:torch.distributed is", "-c", block],
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


def test_the_policy_versions_of_the_page(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")
    (block,) = blocks_of(TRAINING)[1:]
    run_block(block, tmp_path)


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
