"""`steplog checkpoint diff` of a training's own values: what changed in them, place by place."""

from pathlib import Path

import pytest

from eventlog.canonical import Registered, encode
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.value_difference import ROWS_MAX
from snapshots.random_state import capture_random
from tests.replay.cli.test_docs import keys_of
from tests.support.checkpoint_parts import write_checkpoint
from tests.support.command import Command

SETTINGS = "optimizer.default.settings"
RANK = "training.rank-0"


@pytest.fixture
def store(steplog: Command) -> CheckpointStore:
    steplog.open().close()
    return CheckpointStore(Path(steplog.workspace) / "checkpoints")


def write_two(store: CheckpointStore, name: str, before: object, after: object) -> None:
    for step, value in ((1, before), (2, after)):
        held = value if isinstance(value, bytes) else encode(value)
        write_checkpoint(store, step, {"w": b"x"}, values={name: encode(held)})


def rows(steplog: Command) -> list[tuple[str, str, object, object]]:
    ran = steplog("checkpoint", "diff", "step:1", "step:2", "--json")
    assert ran.code == 1
    assert all(list(row) == keys_of("checkpoint", "diff") for row in ran.rows)
    return [(row["name"], row["change"], row["before"], row["after"]) for row in ran.rows]


def test_settings_that_changed_are_told_each(steplog: Command, store: CheckpointStore) -> None:
    """They were told as `{"$bytes": ...}` on both sides: not that the learning rate had changed."""
    group = {"params": ["w"], "lr": 0.01, "betas": (0.9, 0.99), "fused": None, "old key": 1}
    changed = {"params": ["w"], "lr": 0.001, "betas": (0.9, 0.95), "fused": None, "new": [1]}
    write_two(
        *(store, SETTINGS),
        {"kind": "Adam", "groups": [group], "numbers": {"w": {"n": 1}}},
        {"kind": "Adam", "groups": [changed], "numbers": {"w": {"n": 1.0}}},
    )
    assert rows(steplog) == [
        (f"{SETTINGS}.groups[0].lr", "value", {"value": 0.01}, {"value": 0.001}),
        (f"{SETTINGS}.groups[0].betas[1]", "value", {"value": 0.99}, {"value": 0.95}),
        (f'{SETTINGS}.groups[0]["old key"]', "removed", {"value": 1}, None),
        (f"{SETTINGS}.groups[0].new", "added", None, {"value": [1]}),
        (f"{SETTINGS}.numbers.w.n", "value", {"value": 1}, {"value": {"$float": "1.0"}}),
    ]
    lines = steplog("checkpoint", "diff", "step:1", "step:2").lines
    assert lines[1][:4] == [f"{SETTINGS}.groups[0].lr", "value", "0.01", "0.001"]


def test_of_a_rank_random_states_are_one_row(steplog: Command, store: CheckpointStore) -> None:
    both = {"format": 1, "data_is_global": True}
    before, after = (
        {**both, "data": {"done": done}, "random": capture_random()} | {"progress": progress}
        for done, progress in (([0, 8], None), ([0, 9], Registered("no.such", 1, {"a": 2})))
    )
    after["random"] = {**before["random"], "python": [3, b"\0" * 2500, None]}
    write_two(store, RANK, before, after)
    found = {name: (change, left, right) for name, change, left, right in rows(steplog)}
    assert list(found) == [f"{RANK}.data.done[1]", f"{RANK}.random", f"{RANK}.progress"]
    assert found[f"{RANK}.data.done[1]"] == ("value", {"value": 8}, {"value": 9})
    change, left, right = found[f"{RANK}.random"]
    assert change == "value"
    assert left != right


def test_a_value_that_changed_in_many_places_is_not_told_without_end(
    steplog: Command, store: CheckpointStore
) -> None:
    for count in (ROWS_MAX, ROWS_MAX + 1):
        before, after = ({"data": list(range(at, at + count))} for at in (0, 1))
        write_two(store, RANK, before, after)
        names = [name for name, *_ in rows(steplog)]
        assert names[:ROWS_MAX] == [f"{RANK}.data[{number}]" for number in range(ROWS_MAX)]
        assert names[ROWS_MAX:] == ([] if count == ROWS_MAX else [RANK])


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("extra.mine", {"lr": 1}, {"lr": 2}),  # bytes of a user's: what they hold is not known
        (SETTINGS, b"\xc1 no canonical bytes", {"lr": 2}),
        (SETTINGS, {"lr": 1}, [1]),
        (SETTINGS, {"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ],
)
def test_what_is_not_known_is_told_as_a_whole(
    steplog: Command, store: CheckpointStore, name: str, before: object, after: object
) -> None:
    write_two(store, name, before, after)
    ((told, change, left, right),) = rows(steplog)
    assert (told, change) == (name, "value")
    assert left != right
