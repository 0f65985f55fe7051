"""`steplog checkpoint export` and `import`: what they write, what they say, and with which code."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from snapshots.checkpoint_store import CheckpointStore
from tests.replay.cli.test_docs import keys_of
from tests.support.command import Command
from tests.support.safetensors_files import keep_tensors, random_tensors, read_file, write_file
from tests.support.sources import ROOT

TENSORS = random_tensors(Random(1), (3, 5), (), (0, 4))
FILE = "model.safetensors"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_file(tmp_path / FILE, TENSORS)
    return tmp_path / FILE


def test_in_and_out_again(steplog: Command, source: Path, tmp_path: Path) -> None:
    """The workspace is made, HEAD is on the import, and the export holds the same."""
    (row,) = steplog.rows("checkpoint", "import", source, "--step", 7)
    assert list(row) == keys_of("checkpoint", "import")
    head = CheckpointStore(Path(steplog.workspace) / "checkpoints").head()
    assert head == (row["step"], row["id"], row["manifest"])
    assert (row["tensors"], row["values"], row["left_out"]) == (len(TENSORS), 0, [])
    out = tmp_path / "out"
    (row,) = steplog.rows("checkpoint", "export", "step:7", out, "--prefix", "model.")
    assert list(row) == keys_of("checkpoint", "export")
    assert (row["folder"], row["files"], row["tensors"]) == (str(out), [FILE], len(TENSORS))
    assert read_file(out / FILE) == TENSORS


def test_tables(steplog: Command, source: Path, tmp_path: Path) -> None:
    ran = steplog("checkpoint", "import", source, "--step", 7, "--prefix", "")
    assert ran.code == 0
    assert ran.lines[0] == ["STEP", "ID", "TENSORS", "SIZE", "VALUES"]
    ran = steplog("checkpoint", "export", "HEAD", tmp_path / "out", "--tensors", "*.bool")
    assert ran.code == 0
    assert ran.lines[0] == ["STEP", "ID", "TENSORS", "SIZE", "FOLDER", "FILES"]
    assert f"left out: {len(TENSORS) - 1} tensors that were not chosen, 0 values" in ran.err


def test_a_folder_in_place_of_the_workspace(steplog: Command, source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    steplog.rows("checkpoint", "import", source, "--step", 1, "--folder", folder)
    keep_tensors(CheckpointStore(folder), 2, {"a": ("uint8", (2,), b"ab")}, values={"n": 1})
    ran = steplog(
        *("--json", "checkpoint", "export", "HEAD", tmp_path / "out", "--folder", folder),
        *("--layout", "huggingface"),
    )
    row = ran.row
    assert (row["step"], row["values_left_out"]) == (2, 1)
    assert not Path(steplog.workspace).exists()


def test_what_goes_wrong_has_its_code(steplog: Command, source: Path, tmp_path: Path) -> None:
    source.write_bytes(source.read_bytes()[:-1])
    ran = steplog("checkpoint", "import", source, "--step", 1, "--folder", tmp_path / "c")
    assert (ran.code, ran.out) == (4, "")
    assert FILE in ran.err
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, code, what in (
        ((empty, "--step", 1, "--format", "dcp"), 6, ".metadata"),
        ((source,), 2, "--step"),
        ((source, "--step", -1), 2, "--step"),
        ((source, "--step", 1, "--skip-values"), 2, "no values to skip"),
        ((empty, "--step", 1, "--format", "dcp", "--prefix", "a"), 2, "without a prefix"),
        ((empty, empty, "--step", 1, "--format", "dcp"), 2, "one folder"),
    ):
        ran = steplog("checkpoint", "import", *arguments, "--folder", tmp_path / "c")
        assert (ran.code, ran.out) == (code, "")
        assert what in ran.err
    ran = steplog("checkpoint", "export", "HEAD", tmp_path / "out", "--folder", tmp_path / "c")
    assert ran.code == 2 if not (tmp_path / "c").exists() else ran.code == 6
    keep_tensors(CheckpointStore(tmp_path / "c"), 1, {"a": ("uint8", (2,), b"ab")})


def test_a_mistake_in_the_call_is_not_said_to_be_damage(
    steplog: Command, source: Path, tmp_path: Path
) -> None:
    """What is named wrongly: no stored byte is damaged, so the exit code is not that of damage."""
    keep_tensors(CheckpointStore(tmp_path / "c"), 1, {"a": ("uint8", (2,), b"ab")})
    for name in ("empty", "used", "used/in"):
        (tmp_path / name).mkdir()
    second = tmp_path / "m-00002-of-00002.safetensors"
    for path in (second, tmp_path / "m-00001-of-00002.safetensors"):
        write_file(path, TENSORS)
    out, nothing, empty = tmp_path / "out", tmp_path / "nope", tmp_path / "empty"
    one, dcp = ("--step", 1), ("--step", 1, "--format", "dcp")
    for arguments, what in (
        (("export", "HEAD", tmp_path / "used"), "is there already"),
        (("export", "HEAD", source), "is there already"),
        (("export", "HEAD", source / "deep" / "er"), f"{source} is not a folder"),
        (("export", "HEAD", out, "--tensors", "b*"), "no tensor of checkpoint"),
        (("export", "HEAD", out, "--prefix", "modell."), "no tensor of checkpoint"),
        (("export", "HEAD", out, "--prefix", "a"), "nothing is left"),
        (("import", nothing, *one), f"there is nothing at {nothing}"),
        (("import", source / "x", *one), f"there is nothing at {source / 'x'}"),
        (("import", source, nothing, *one), f"there is nothing at {nothing}"),
        (("import", source, empty, *one), f"{empty} is a folder"),
        (("import", second, *one), "not among the given files"),
        (("import", empty, *one), "no file that ends in .safetensors"),
        (("import", nothing, *dcp), f"there is nothing at {nothing}"),
        (("import", source, *dcp), f"{source} is not a folder"),
    ):
        ran = steplog("checkpoint", *arguments, "--folder", tmp_path / "c")
        assert (ran.code, ran.out) == (2, ""), arguments
        assert what in " ".join(ran.err.split())
        assert "hint:" in ran.err
    assert not out.exists()
    for verb in (("list",), ("gc",), ("import", source, "--step", 1)):
        for folder in (source, source / "x"):
            ran = steplog("checkpoint", *verb, "--folder", folder)
            assert (ran.code, ran.out) == (2, ""), (verb, folder)
            assert f"{source} is not a folder" in " ".join(ran.err.split())


def test_a_hostile_folder_runs_nothing(
    steplog: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (os.mkdir, ("made",))

    folder = tmp_path / "evil"
    folder.mkdir()
    (folder / ".metadata").write_bytes(pickle.dumps(Evil()))
    monkeypatch.chdir(folder)
    ran = steplog("checkpoint", "import", folder, "--step", 1, "--folder", tmp_path / "c")
    assert (ran.code, ran.out) == (4, "")
    assert "posix.mkdir" in ran.err
    assert os.listdir(folder) == [".metadata"]


def test_torch_is_not_loaded(source: Path, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from replay.cli.main import run_command\n"
        "f = ['--folder', 'c']\n"
        f"assert run_command(['checkpoint', 'import', '{FILE}', '--step', '1', *f]) == 0\n"
        "assert run_command(['checkpoint', 'export', 'HEAD', 'out', *f]) == 0\n"
        "assert not {'torch', 'safetensors'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
