"""What could not be read back is refused before it is kept.

A manifest that nobody can read stops retention and `gc` of its whole folder: one save that was
told to have failed had done that for good.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

from eventlog.errors import CheckpointError  # noqa: E402
from replay.workspace import open_workspace  # noqa: E402
from snapshots import shard_writer  # noqa: E402
from snapshots.checkpoint_config import CheckpointConfig  # noqa: E402
from snapshots.checkpoint_retention import collect_garbage  # noqa: E402
from snapshots.checkpoint_store import CheckpointStore  # noqa: E402
from snapshots.shard_writer import ShardWriter  # noqa: E402
from tests.support.torch_states import fingerprint, load_again, save  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")


def nested(levels: int, leaf: object) -> object:
    for _ in range(levels):
        leaf = {"k": leaf}
    return leaf


UNFIT: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "a tensor without a name": (lambda: {"": torch.ones(3)}, "the name '' has 0 characters"),
    "a value without a name": (lambda: {"": 5, "w": torch.ones(3)}, "the name '' has 0 characters"),
    "a deep tensor": (
        lambda: {"a": nested(64, torch.ones(3))},
        "is nested 65 levels deep; at most 64",
    ),
    "a deep value": (lambda: {"a": nested(70, 1)}, "is nested 71 levels deep"),
    "half a character": (lambda: {"\ud800": torch.ones(3)}, "a lone surrogate"),
    "a long name": (lambda: {"n" * 5000: torch.ones(3)}, "has 5000 characters"),
}


@pytest.mark.parametrize("what", UNFIT)
def test_a_name_that_is_not_read_is_refused_before_an_object_is_kept(
    what: str, tmp_path: Path
) -> None:
    store = CheckpointStore(tmp_path)
    first = save({"w": torch.ones(2)}, ShardWriter(store, step=1))
    objects = list(store.objects.list_objects())
    state, message = UNFIT[what]
    with pytest.raises(CheckpointError, match=message):
        save(state(), ShardWriter(store, step=2))
    assert list(store.objects.list_objects()) == objects
    assert store.list_checkpoints() == [first]
    assert collect_garbage(store, grace_s=-1).unfinished == ()


def test_what_is_as_deep_as_can_be_is_read_again(tmp_path: Path) -> None:
    state = {"a": nested(63, torch.ones(3)), "b": nested(63, 7)}
    save(state, ShardWriter(tmp_path, step=1))
    assert fingerprint(load_again(state, tmp_path)) == fingerprint(state)


@pytest.mark.parametrize("clock_ns", [-5, 1 << 63])
def test_a_clock_that_is_not_read_is_refused_before_the_manifest(
    clock_ns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path)
    first = save({"w": torch.ones(2)}, ShardWriter(store, step=1))
    with monkeypatch.context() as patched:
        patched.setattr(shard_writer.time, "time_ns", lambda: clock_ns)
        with pytest.raises(CheckpointError, match=r"created_ns is .* no count") as caught:
            save({"w": torch.zeros(2)}, ShardWriter(store, step=2))
    assert "clock" in caught.value.hint
    assert store.list_checkpoints() == [first]
    collect_garbage(store, grace_s=-1)
    save({"w": torch.zeros(2)}, ShardWriter(store, step=2))


def test_a_training_goes_on_after_a_state_that_was_nested_too_deep(tmp_path: Path) -> None:
    config = CheckpointConfig(keep_last_n=2)
    with open_workspace(tmp_path) as ws, ws.training("run", config=config) as run:
        first = run.checkpoint(1, extra={"w": torch.ones(3)}).wait()
        with pytest.raises(CheckpointError, match=r"save of step 2 failed: .* levels deep"):
            run.checkpoint(2, extra={"w": nested(70, torch.ones(3))})
        later = [run.checkpoint(step, extra={"w": torch.ones(3)}).wait() for step in (3, 4)]
        assert run.checkpoints.list_checkpoints() == later
        assert first not in later
