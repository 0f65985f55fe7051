"""`steplog checkpoint`: what it says of sound checkpoints, of hostile ones, and with which code."""

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventlog.canonical import encode
from replay.cli.commands.checkpoint import app
from replay.cli.main import VERBS
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.manifest import CheckpointRef
from tests.replay.cli.test_docs import keys_of
from tests.support.checkpoint_parts import write_checkpoint
from tests.support.command import Command
from tests.support.forbidden_paths import forbid
from tests.support.sources import ROOT

BIG = random.Random(1).randbytes(200_000)
SMALL = {"b": b"some bytes"}
DIGEST = "0" * 64


@pytest.fixture
def store(steplog: Command) -> CheckpointStore:
    steplog.open().close()
    return CheckpointStore(Path(steplog.workspace) / "checkpoints")


@pytest.fixture
def two(store: CheckpointStore) -> list[CheckpointRef]:
    """Two checkpoints in the line without a name: the second rests on the first."""
    first = write_checkpoint(store, 7, {"w": BIG, **SMALL}, values={"lr": encode(0.5)})
    changed = bytes([BIG[0] ^ 1]) + BIG[1:]
    tensors = {"w": changed, **SMALL}
    return [first, write_checkpoint(store, 8, tensors, ancestor=first, generation=1)]


def object_of(store: CheckpointStore, ref: CheckpointRef, tensor: str) -> Path:
    parts = {one.tensor: one.part for one in store.read_manifest(ref).parts()}
    return store.objects.object_path(parts[tensor].stored.digest)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_what_may_not_be_read_is_told_with_its_path_and_never_a_traceback(
    steplog: Command,
    store: CheckpointStore,
    two: list[CheckpointRef],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.pin("best", two[0])
    closed = tmp_path / "closed"
    (closed / "ckpt").mkdir(parents=True)
    forbid(monkeypatch, object_of(store, two[0], "w"))
    forbid(monkeypatch, store.folder / "pins")
    forbid(monkeypatch, closed)
    for arguments, place in [
        (("check", two[0].id), object_of(store, two[0], "w")),
        (("list",), store.folder / "pins"),
        (("list", "--folder", closed / "ckpt"), closed / "ckpt"),
        (("import", closed / "ckpt", "--step", 9), closed / "ckpt"),
    ]:
        ran = steplog("--json", "checkpoint", *arguments)
        told = " ".join(ran.err.split())
        assert ran.code == 4, arguments
        assert f"{place} cannot be used: Permission denied" in told or str(place) in told
        assert "Permission denied" in told
        assert "is damaged" not in told
        assert "Traceback" not in told


def test_listing(steplog: Command, store: CheckpointStore, two: list[CheckpointRef]) -> None:
    store.pin("best", two[0])
    policies = CheckpointStore(store.folder, "policies-a")
    version = write_checkpoint(policies, 3, SMALL)
    store.begin_checkpoint(9, "half")
    rows = steplog.rows("checkpoint", "list")
    assert all(list(row) == keys_of("checkpoint", "list") for row in rows)
    told = [(row["track"], row["step"], row["id"], row["kind"], row["status"]) for row in rows]
    assert told == [
        (None, 7, two[0].id, "checkpoint", "committed"),
        (None, 8, two[1].id, "checkpoint", "committed"),
        (None, 9, "half", None, "incomplete"),
        ("policies-a", 3, version.id, "policy version", "committed"),
    ]
    assert [(row["head"], row["pins"], row["ancestor"]) for row in rows] == [
        (False, ["best"], None),
        (True, [], two[0].id),
        (False, [], None),
        (True, [], None),
    ]
    first = rows[0]
    assert (first["world_size"], first["tensors"], first["raw_bytes"]) == (1, 2, 200_010)
    assert first["stored_bytes"] >= 200_000 > rows[1]["stored_bytes"]
    assert first["manifest"] == two[0].digest
    assert 1_600_000_000 < first["created"] / 1e6 < 10_000_000_000
    assert steplog.rows("checkpoint", "list", "--track", "policies-a") == rows[3:]
    assert steplog.rows("checkpoint", "list", "--track", ".") == rows[:3]
    folder = steplog.at("nowhere")
    assert folder.rows("checkpoint", "list", "--folder", store.folder) == rows
    lines = steplog("checkpoint", "list").lines
    assert lines[0][:5] == ["TRACK", "STEP", "ID", "WHAT", "MARKS"]
    assert lines[1][:5] == [".", "7", two[0].id, "checkpoint", "best"]
    assert lines[3][:5] == [".", "9", "half", "incomplete", "-"]


def test_nothing_is_there(steplog: Command, store: CheckpointStore, tmp_path: Path) -> None:
    assert steplog("checkpoint", "list") == (0, "", f"no checkpoints in {store.folder}\n")
    assert steplog("checkpoint", "check").code == 0
    assert steplog("checkpoint", "head").out == ""
    for dry in ([], ["--dry-run"]):
        assert steplog.row("checkpoint", "gc", *dry, "-q")["objects"] == 0
    assert not store.folder.exists(), "looking makes nothing"
    ran = steplog("checkpoint", "list", "--folder", tmp_path / "none")
    assert (ran.code, "there is no folder" in ran.err) == (2, True)
    assert steplog.at(tmp_path / "none")("checkpoint", "list").code == 2
    assert steplog("checkpoint", "check", "HEAD").code == 6
    ran = steplog("checkpoint", "list", "--track", "x")
    assert (ran.code, "there are: none" in ran.err) == (2, True)


def test_all_is_sound(steplog: Command, store: CheckpointStore, two: list[CheckpointRef]) -> None:
    rows = steplog.rows("checkpoint", "check", "-q")
    assert [list(row) for row in rows] == [keys_of("checkpoint", "check")] * 2
    assert [(row["id"], row["verdict"], row["parts"], row["bytes"]) for row in rows] == [
        (one.id, "ok", 2, 200_010) for one in two
    ]
    assert steplog.rows("checkpoint", "check", "step:8", "-q") == rows[::-1], "its ancestor too"
    assert steplog.rows("checkpoint", "check", two[0].id, "-q") == rows[:1]
    ran = steplog("checkpoint", "check")
    assert (ran.code, ran.err) == (0, "2 checkpoints, all sound\n")
    assert ran.lines[1][:4] == [".", "7", two[0].id, "ok"]


@pytest.mark.parametrize("hurt", ["flipped", "cut", "gone", "folder", "link", "pipe"])
def test_a_part_that_is_not_what_was_saved(
    steplog: Command, store: CheckpointStore, two: list[CheckpointRef], hurt: str
) -> None:
    path = object_of(store, two[0], "w")
    if hurt == "flipped":
        flip(path)
    elif hurt == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
    if hurt == "folder":
        path.mkdir()
    elif hurt == "link":
        path.symlink_to("nowhere")
    elif hurt == "pipe":
        subprocess.run(["mkfifo", path], check=True)
    ran = steplog("checkpoint", "check", "--json")
    missing = hurt in ("gone", "link")
    assert ran.code == (6 if missing else 4)
    verdict = "incomplete" if missing else "damaged"
    # Both: the second is a difference to the first.
    assert [row["verdict"] for row in ran.rows] == [verdict, verdict]
    (problem,) = ran.rows[0]["problems"]
    assert (problem["tensor"], problem["object"]) == ("w", path.name)
    assert f"./{two[0].id}: " in ran.err
    assert "tensor 'w'" in ran.err
    assert path.name in ran.err
    assert steplog("checkpoint", "list").code == 0, "no part is read for it"


@pytest.mark.parametrize("hurt", ["flipped", "cut", "folder", "link", "empty", "deep", "other"])
def test_a_manifest_that_cannot_be_read(
    steplog: Command, store: CheckpointStore, two: list[CheckpointRef], hurt: str
) -> None:
    path = store.set_folder(two[0]) / "manifest.json"
    data = path.read_bytes()
    path.unlink()
    if hurt == "folder":
        path.mkdir()
    elif hurt == "link":
        path.symlink_to("nowhere")
    elif hurt == "other":
        shutil.copy(store.set_folder(two[1]) / "manifest.json", path)
    else:
        altered = {"cut": data[:-5], "empty": b"", "deep": b"[" * 100_000}
        path.write_bytes(altered.get(hurt, data.replace(b'"id"', b'"Id"', 1)))
    for verb, key in (("list", "status"), ("check", "verdict")):
        ran = steplog("checkpoint", verb, "--json")
        # A link to nothing is a manifest that is missing, and not a save that was killed.
        assert ran.code == 4 or hurt == "link"
        assert ran.code in (4, 6)
        words = {row["id"]: row[key] for row in ran.rows}
        assert words[two[0].id] != "ok"
        assert str(path) in ran.err
    assert steplog("checkpoint", "gc", "--grace", "0s").code in (4, 6)
    assert object_of(store, two[1], "w").exists()


def test_a_save_that_was_killed_is_said_to_be_incomplete(
    steplog: Command, store: CheckpointStore, two: list[CheckpointRef]
) -> None:
    store.begin_checkpoint(9, "half")
    ran = steplog("checkpoint", "check", "--json")
    assert ran.code == 6
    assert [row["verdict"] for row in ran.rows] == ["ok", "ok", "incomplete"]
    assert "checkpoint half has no manifest.json: it was not committed" in ran.err
    for ref in ("half", "step:9"):
        ran = steplog("checkpoint", "check", ref)
        assert (ran.code, "was not committed" in ran.err) == (6, True)
    assert steplog("checkpoint", "check", two[1].id).code == 0


def test_strangers_are_passed_over(
    steplog: Command, store: CheckpointStore, two: list[CheckpointRef]
) -> None:
    (store.folder / "sets" / "notes.txt").write_text("mine")
    (store.folder / "sets" / "000000000001-UP").mkdir()
    (store.folder / "lines").mkdir()
    (store.folder / "lines" / "..strange").write_text("")
    (store.folder / "objects" / "zz").mkdir()
    (store.folder / "objects" / "zz" / "note").write_text("")
    ran = steplog("checkpoint", "list", "--json")
    assert (ran.code, len(ran.rows)) == (0, 2)
    assert ran.err.count("is no checkpoint: passed over") == 2
    assert steplog("checkpoint", "check").code == 0
    assert steplog("checkpoint", "gc", "--grace", "0s").code == 0
    assert (store.folder / "sets" / "notes.txt").exists()


@pytest.mark.parametrize(("name", "what"), [("HEAD", "HEAD"), ("pins/best", "the pin 'best'")])
def test_pointers_that_are_damaged_or_lead_nowhere(
    steplog: Command, store: CheckpointStore, two: list[CheckpointRef], name: str, what: str
) -> None:
    store.pin("best", two[0])
    (store.folder / name).write_text(f"000000000099-none {DIGEST}\n")
    for verb in ("list", "check"):
        ran = steplog("checkpoint", verb, "--json")
        assert (ran.code, len(ran.rows)) == (6, 2)
        assert f"{what} names checkpoint none of step 99" in ran.err
    for hurt in ("\0" * 9, "", f"../../etc {DIGEST}\n"):
        (store.folder / name).write_text(hurt)
        ran = steplog("checkpoint", "list", "--json")
        assert (ran.code, len(ran.rows)) == (4, 2)
        assert "it names no checkpoint" in ran.err
    steplog.row("checkpoint", "head", two[1].id)
    steplog.row("checkpoint", "pin", "best", two[1].id, "--move")
    assert steplog("checkpoint", "list").code == 0


def test_differences(steplog: Command, store: CheckpointStore, two: list[CheckpointRef]) -> None:
    third = write_checkpoint(
        store,
        9,
        {"w": BIG[:100], "new": b"x"},
        values={"lr": encode(0.25), "far": encode("y" * 5000), "b": encode(1)},
    )
    ran = steplog("checkpoint", "diff", "step:7", "step:8", "--json")
    assert ran.code == 1
    assert [list(row) for row in ran.rows] == [keys_of("checkpoint", "diff")] * 2
    assert ran.rows[0] == {
        "name": "lr",
        "change": "removed",
        "before": {"value": 0.5},
        "after": None,
        "parts": None,
        "parts_changed": None,
        "numbers": None,
        "numbers_changed": None,
    }
    side = {"dtype": "uint8", "shape": [200_000]}
    counts = {"parts": 1, "parts_changed": 1, "numbers": 200_000, "numbers_changed": None}
    row = {"name": "w", "change": "numbers", "before": side, "after": side, **counts}
    assert ran.rows[1] == row
    ran = steplog("checkpoint", "diff", "step:7", "step:8", "--json", "--values")
    assert ran.rows[1] == row | {"numbers_changed": 1}
    ran = steplog("checkpoint", "diff", two[0].id, third.id, "--json")
    assert {one["name"]: one["change"] for one in ran.rows} == {
        "b": "kind",
        "far": "added",
        "lr": "value",
        "new": "added",
        "w": "shape",
    }
    far = next(one for one in ran.rows if one["name"] == "far")["after"]
    assert (list(far), far["bytes"]) == (["sha256", "bytes"], 5003)
    lines = steplog("checkpoint", "diff", "step:7", "step:8", "--values").lines
    assert lines[2] == [
        "w",
        "numbers",
        "uint8 [200000]",
        "uint8 [200000]",
        "1 of 1 (100.0%)",
        "1 of 200000 (0.0%)",
    ]
    ran = steplog("checkpoint", "diff", "step:7", two[0].id)
    assert ran == (0, "", "no difference\n")
    flip(object_of(store, two[0], "w"))
    ran = steplog("checkpoint", "diff", "step:7", "step:8", "--values")
    assert (ran.code, "tensor 'w'" in ran.err) == (4, True)


def test_garbage(steplog: Command, store: CheckpointStore, two: list[CheckpointRef]) -> None:
    store.objects.put_object([b"loose"])
    store.begin_checkpoint(9, "half")
    expected = {"objects": 1, "bytes": 5, "unfinished": ["sets/000000000009-half"]}
    assert steplog.row("checkpoint", "gc")["objects"] == 0, "it is young"
    ran = steplog("checkpoint", "gc", "--grace", "0s", "--dry-run", "--json")
    assert (ran.code, ran.row, ran.err) == (0, expected, "nothing was taken away\n")
    assert list(ran.row) == keys_of("checkpoint", "gc")
    assert steplog.row("checkpoint", "gc", "--grace", "0s") == expected
    assert steplog.row("checkpoint", "gc", "--grace", "0s")["unfinished"] == []
    assert steplog("checkpoint", "gc", "--grace", "soon").code == 2
    assert steplog("checkpoint", "check").code == 0


def test_names(steplog: Command, store: CheckpointStore, two: list[CheckpointRef]) -> None:
    row = steplog.row("checkpoint", "pin", "best")
    for sub_verb in ("pin", "unpin", "head"):
        assert list(row) == keys_of("checkpoint", sub_verb)
    assert row == {
        "name": "best",
        "track": None,
        "id": two[1].id,
        "step": 8,
        "manifest": two[1].digest,
    }
    assert steplog.row("checkpoint", "pin", "best", "step:8") == row
    ran = steplog("checkpoint", "pin", "best", "step:7")
    assert (ran.code, f"on checkpoint {two[1].id}" in ran.err) == (2, True), ran.err
    assert store.pins() == {"best": two[1]}, "it was moved without a word"
    assert steplog.row("checkpoint", "pin", "best", "step:7", "--move")["id"] == two[0].id
    assert steplog.row("checkpoint", "head", "pin:best")["id"] == two[0].id
    assert store.head() == two[0]
    assert steplog.rows("checkpoint", "head") == [
        {"name": "HEAD", "track": None, "id": two[0].id, "step": 7, "manifest": two[0].digest}
    ]
    assert steplog.row("checkpoint", "unpin", "best")["id"] == two[0].id
    assert store.pins() == {}
    assert steplog("checkpoint", "unpin", "best").code == 6
    assert steplog("checkpoint", "pin", "../up").code == 2
    assert steplog("checkpoint", "pin", "UP", "HEAD").code == 2
    object_of(store, two[1], "w").unlink()
    assert steplog("checkpoint", "head", two[1].id).code == 6
    assert store.head() == two[0]


@pytest.mark.parametrize("kind", ["trainings", "policies"])
def test_a_head_that_a_log_decides_of_is_not_moved_in_vain(
    steplog: Command, store: CheckpointStore, kind: str
) -> None:
    """It was told to be done, and the training went on from where its log says."""
    track = CheckpointStore(store.folder, f"{kind}-a")
    first, second = (write_checkpoint(track, step, SMALL) for step in (1, 2))
    ran = steplog("checkpoint", "head", first.id)
    told = " ".join(re.findall(r"[^\s│]+", ran.err))
    assert ran.code == 2
    instead = f'run.restore("{first.id}")' if kind == "trainings" else "policy rollback 1"
    assert instead in told
    assert track.head() == second
    (track.track_folder / "HEAD").write_bytes(b"?")
    ran = steplog("checkpoint", "check")
    assert ran.code == 4
    assert "all sound" not in ran.err
    assert steplog("checkpoint", "head", second.id).code == 0, "a damaged one is mended"
    assert "2 checkpoints, all sound" in steplog("checkpoint", "check").err


@pytest.mark.parametrize("ref", ["none", "step:99", "pin:none", "../../etc", "", "pin:", "a\nb"])
def test_what_is_not_there(steplog: Command, two: list[CheckpointRef], ref: str) -> None:
    ran = steplog("checkpoint", "check", ref)
    assert ran.code in (2, 6)
    assert "error" in ran.err.lower()


@pytest.mark.parametrize("ref", ["step:", "step:x", "step:-1", "step:\u0661"])
def test_a_step_that_is_no_number(steplog: Command, two: list[CheckpointRef], ref: str) -> None:
    assert steplog("checkpoint", "check", ref).code == 2


def test_what_several_lines_have_is_asked_for_by_line(
    steplog: Command, store: CheckpointStore, two: list[CheckpointRef]
) -> None:
    other = CheckpointStore(store.folder, "trainings-a")
    ref = write_checkpoint(other, 8, SMALL)
    for asked in ("HEAD", "step:8"):
        ran = steplog("checkpoint", "check", asked)
        assert ran.code == 2
        told = " ".join(re.findall(r"[^\s│]+", ran.err))
        assert f"./{asked} or trainings-a/{asked}" in told
        row = steplog.row("checkpoint", "check", f"trainings-a/{asked}", "-q")
        assert row["id"] == ref.id
        assert steplog.row("checkpoint", "check", asked, "--track", "trainings-a", "-q") == row
        assert steplog.rows("checkpoint", "check", f"./{asked}", "-q")[0]["id"] == two[1].id
    assert steplog.row("checkpoint", "check", ref.id, "-q")["track"] == "trainings-a"
    assert steplog("checkpoint", "diff", "./HEAD", "trainings-a/HEAD").code == 1
    steplog.row("checkpoint", "pin", "x", "./HEAD")
    steplog.row("checkpoint", "pin", "x", "trainings-a/HEAD")
    assert steplog("checkpoint", "unpin", "x").code == 2
    assert steplog.row("checkpoint", "unpin", "trainings-a/x")["track"] == "trainings-a"
    assert len(steplog.rows("checkpoint", "head")) == 2
    assert steplog("checkpoint", "check", "none/HEAD").code == 2


def test_a_damaged_copy_in_one_line_hides_no_sound_one_in_another(
    steplog: Command, store: CheckpointStore, two: list[CheckpointRef]
) -> None:
    other = CheckpointStore(store.folder, "trainings-a")
    write_checkpoint(other, 1, SMALL)
    (other.track_folder / "HEAD").write_bytes(b"?")
    assert steplog.rows("checkpoint", "check", "HEAD", "-q")[0]["id"] == two[1].id
    assert steplog("checkpoint", "check", "trainings-a/HEAD").code == 4
    assert steplog("checkpoint", "list").code == 4


@pytest.mark.parametrize("arguments", [["list"], ["check"], ["diff", "step:7", "step:8"], ["gc"]])
def test_torch_is_not_loaded(
    steplog: Command, store: CheckpointStore, two: list[CheckpointRef], arguments: list[str]
) -> None:
    code = (
        "import sys, json; from replay.cli.main import run_command\n"
        "run_command(sys.argv[1:]); print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    given = ["-q", "checkpoint", *arguments, "--folder", str(store.folder)]
    ran = subprocess.run(
        [sys.executable, "-c", code, *given], cwd=ROOT, capture_output=True, check=True, text=True
    )
    assert ran.stdout
    loaded: list[str] = json.loads(ran.stderr)
    assert "snapshots.checkpoint_store" in loaded
    assert not {"torch", "pandas", "safetensors"} & set(loaded)


def test_frozen_checkpoints_are_listed_and_sound(steplog: Command) -> None:
    folder = ROOT / "tests" / "golden" / "checkpoints"
    before = sorted(folder.rglob("*"))
    listed = steplog.rows("checkpoint", "list", "--folder", folder)
    checked = steplog.rows("checkpoint", "check", "--folder", folder, "-q")
    assert len(listed) == len(checked) > 1
    assert {row["verdict"] for row in checked} == {"ok"}
    assert sorted(folder.rglob("*")) == before


def test_every_sub_verb_is_tried_here() -> None:
    names = {one.name or one.callback.__name__ for one in app.registered_commands if one.callback}
    tried: Callable[..., Any] = Path(__file__).read_text
    assert "checkpoint" in VERBS
    ours = {"list", "check", "diff", "gc", "pin", "unpin", "head"}
    assert ours <= names
    assert all(f'"checkpoint", "{one}"' in tried(encoding="utf-8") for one in ours)
