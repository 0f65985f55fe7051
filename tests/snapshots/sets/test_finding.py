"""`SetFinder`: which set a training goes on from, shown without torch."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog.errors import CheckpointError, CheckpointIncompleteError, ConfigError
from eventlog.recorder import SessionRecorder
from replay.workspace import Workspace, open_workspace
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.sets.finding import OTHERS_NAMED_MAX, SetFinder
from snapshots.sets.journal import KEPT, RESTORED, note_value
from tests.support.kept_sets import TRAINING, keep_set, store_of
from tests.support.own_sessions import training_session


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path / "ws") as opened:
        yield opened


@pytest.fixture
def trainer(ws: Workspace) -> SessionRecorder:
    return training_session(ws, TRAINING)


def finder_of(ws: Workspace) -> SetFinder:
    return SetFinder(ws.log, store_of(ws), TRAINING)


def kept(
    ws: Workspace, trainer: SessionRecorder, id_: str, commits: str | None = ""
) -> CheckpointRef:
    """A set, and the note of it in the training session."""
    trainer.flush()
    ref = keep_set(ws, id_, commits=commits).ref
    trainer.annotate(KEPT, note_value(ref))
    return ref


def take_objects(ws: Workspace) -> None:
    shutil.rmtree(store_of(ws).objects.folder)


def test_a_training_without_sets_has_none(ws: Workspace, trainer: SessionRecorder) -> None:
    assert finder_of(ws).latest() is None
    with pytest.raises(CheckpointIncompleteError, match="no training of this name has kept a set"):
        finder_of(ws).find("set1")


def test_the_set_that_was_committed_last(ws: Workspace, trainer: SessionRecorder) -> None:
    first, second = (kept(ws, trainer, id_) for id_ in ("set1", "set2"))
    assert finder_of(ws).latest() == second
    assert [finder_of(ws).find(one.id) for one in (first, second)] == [first, second]


def test_the_set_that_was_restored_since(ws: Workspace, trainer: SessionRecorder) -> None:
    first = kept(ws, trainer, "set1")
    kept(ws, trainer, "set2")
    trainer.annotate(RESTORED, note_value(first))
    assert finder_of(ws).latest() == first
    third = kept(ws, trainer, "set3")
    assert finder_of(ws).latest() == third


def test_a_set_that_was_never_committed_is_passed_over(
    ws: Workspace, trainer: SessionRecorder
) -> None:
    first = kept(ws, trainer, "set1")
    kept(ws, trainer, "set2", commits=None)
    assert finder_of(ws).latest() == first
    with pytest.raises(CheckpointIncompleteError, match="set set2 of training 'run-1' was never"):
        finder_of(ws).find("set2")


def test_a_newest_set_whose_manifest_is_gone_is_no_older_one(
    ws: Workspace, trainer: SessionRecorder
) -> None:
    first, second = (kept(ws, trainer, id_) for id_ in ("set1", "set2"))
    shutil.rmtree(store_of(ws).set_folder(second))
    with pytest.raises(CheckpointIncompleteError, match="go on from set set2") as caught:
        finder_of(ws).latest()
    assert caught.value.hint is not None
    assert f'run.restore("<id>"): {first.id} (step 7)' in caught.value.hint
    assert caught.value.step == 7


def test_only_so_many_others_are_named(ws: Workspace, trainer: SessionRecorder) -> None:
    refs = [kept(ws, trainer, f"set{number}") for number in range(OTHERS_NAMED_MAX + 2)]
    shutil.rmtree(store_of(ws).set_folder(refs[-1]))
    with pytest.raises(CheckpointIncompleteError) as caught:
        finder_of(ws).latest()
    assert str(caught.value.hint).count("(step 7)") == OTHERS_NAMED_MAX


def test_where_no_set_is_whole_none_is_named(ws: Workspace, trainer: SessionRecorder) -> None:
    for id_ in ("set1", "set2"):
        kept(ws, trainer, id_)
    take_objects(ws)
    with pytest.raises(CheckpointError, match=r"set set2 .* is not whole") as caught:
        finder_of(ws).latest()
    assert str(caught.value.hint).endswith("no other set of the training is whole")


def test_files_of_another_log_are_not_begun_over(
    ws: Workspace, trainer: SessionRecorder, tmp_path: Path
) -> None:
    """To take an older set, or none, would be a silent loss."""
    kept(ws, trainer, "set1")
    with open_workspace(tmp_path / "other") as other:
        training_session(other, TRAINING)
        with pytest.raises(CheckpointError, match=r"set set1 .* the log does not know it"):
            SetFinder(other.log, store_of(ws), TRAINING).latest()


def test_a_set_is_found_by_its_pin_and_its_step(ws: Workspace, trainer: SessionRecorder) -> None:
    ref = kept(ws, trainer, "set1")
    store, finder = store_of(ws), finder_of(ws)
    store.pin("best", ref)
    store.pin("begun", kept(ws, trainer, "set2", commits=None))
    assert finder.find("pin:best") == ref
    # Both are of step 7: it is the one that HEAD is on.
    store.move_head(ref)
    assert finder.find("step:7") == ref
    for named in ("pin:none", "step:8"):
        with pytest.raises(CheckpointIncompleteError, match=f"has no set '{named}'"):
            finder.find(named)
    with pytest.raises(CheckpointIncompleteError, match=r"set set2 .* was never committed"):
        finder.find("pin:begun")
    with pytest.raises(ConfigError, match="step:<number>"):
        finder.find("step:last")
