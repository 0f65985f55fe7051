"""What a user does by mistake: refused where it is done, not found when it is restored."""

import logging
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: checkpoint sets not shown")

from eventlog.errors import CheckpointError, ConfigError, StateError  # noqa: E402
from eventlog.log import SessionFilter  # noqa: E402
from replay.workspace import Workspace, open_workspace  # noqa: E402
from snapshots.sample_order import SampleOrder  # noqa: E402
from snapshots.sets.members import joined_sessions  # noqa: E402
from snapshots.sets.save_rules import SaveRules  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

STATE: dict[str, Any] = {"extra": {"w": torch.ones(3)}}


def opened(ws: Workspace, name: str, **fields: Any) -> Any:
    return ws.record(name, environment="toy", state={"n": 0}, training="run", **fields)


def test_a_model_that_nothing_was_restored_into_is_not_saved_over_a_training(
    tmp_path: Path,
) -> None:
    with open_workspace(tmp_path) as ws:
        with ws.training("run") as run:
            first = run.checkpoint(8, **STATE).wait()
        with (
            pytest.raises(CheckpointError, match=f"newest {first.id} after step 8"),
            ws.training("run") as run,
        ):
            run.checkpoint(1, **STATE)
        with ws.training("run") as run:
            restored = run.restore_latest(**STATE)
            assert restored is not None
            assert restored.set_id == first.id
            run.checkpoint(9, **STATE)
        with ws.training("run", fresh=True) as run:
            anew = run.checkpoint(1, **STATE).wait()
        with ws.training("run") as run:
            restored = run.restore_latest(**STATE)
            assert restored is not None
            assert restored.set_id == anew.id


def test_a_step_that_goes_back_is_refused(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws, ws.training("run") as run:
        run.checkpoint(13, **STATE)
        with pytest.raises(CheckpointError, match="stands at step 13"):
            run.checkpoint(3, **STATE)
        run.checkpoint(13, **STATE)
        older = next(iter(run.checkpoints.list_checkpoints()))
        run.restore(older.id, **STATE)


def test_a_part_that_was_left_out_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_workspace(tmp_path) as ws, ws.training("run") as run:
        run.checkpoint(1, **STATE, data={"at": 1})
        with caplog.at_level(logging.WARNING, "steplog.training"):
            run.checkpoint(2, **STATE)
        assert "lacks data" in caplog.text


@pytest.mark.parametrize(
    "use",
    [
        lambda run: run.checkpoint(1),
        lambda run: run.restore_latest(),
        lambda run: run.restore("x"),
        lambda run: run.branch_from("other", "x"),
        lambda run: run.adopt(1, "."),
        lambda run: run.publish_policy(1, torch.nn.Linear(1, 1)),
        lambda run: run.policy_in_use(),
    ],
)
def test_outside_of_its_block_a_training_does_nothing(tmp_path: Path, use: Any) -> None:
    with open_workspace(tmp_path) as ws:
        run = ws.training("run")
        with pytest.raises(ConfigError, match="outside of its block"):
            use(run)
        with run:
            pass
        with pytest.raises(ConfigError, match="outside of its block"):
            use(run)
        assert [info.session_id for info in ws.sessions()] == ["run"]


@pytest.mark.parametrize("name", ["rank", "attempt", "policy"])
def test_what_a_block_settles_is_told_from_then_on(tmp_path: Path, name: str) -> None:
    """Before it, `run.rank` met a missing attribute."""
    with open_workspace(tmp_path) as ws:
        run = ws.training("run")
        with pytest.raises(ConfigError, match="outside of its block"):
            getattr(run, name)
        with run:
            inside = getattr(run, name)
        assert getattr(run, name) == inside


@pytest.mark.parametrize(
    "part",
    [
        "snapshots.training_run.give_up_open_sets",
        "snapshots.shard_saver.ShardSaver",
        "snapshots.shards.policy_keeper.PolicyKeeper",
    ],
)
def test_a_block_that_could_not_be_entered_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """The claim stayed, its session open, and the next call met a missing attribute."""

    def fail(*_: object, **__: object) -> None:
        raise CheckpointError("no group", hint="")

    with open_workspace(tmp_path) as ws:
        run = ws.training("run")
        with monkeypatch.context() as patch:
            patch.setattr(part, fail)
            with pytest.raises(CheckpointError, match="no group"), run:
                pass
        assert ws.session("run").status == "closed"
        for use in (lambda: run.rank, lambda: run.policy, lambda: run.checkpoint(1, **STATE)):
            with pytest.raises(ConfigError, match="outside of its block"):
                use()
        with pytest.raises(ConfigError, match="entered before"), run:
            pass
        with ws.training("run") as again:
            assert again.attempt == 2
            again.checkpoint(1, **STATE)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("14", TypeError),
        (1.0, TypeError),
        (True, TypeError),
        (-1, ConfigError),
        (10**12, ConfigError),
    ],
)
def test_a_step_that_is_none_begins_no_set(
    tmp_path: Path, step: Any, error: type[Exception]
) -> None:
    with open_workspace(tmp_path) as ws, ws.training("run") as run:
        with pytest.raises(error, match="training step"):
            run.checkpoint(step, **STATE)
        assert [info.session_id for info in ws.sessions()] == ["run"]


def test_settings_may_be_a_dict_and_names_are_texts(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws:
        with ws.training("run", config={"save_interval": 2}) as run:
            assert [step for step in range(5) if run.is_due(step)] == [2, 3, 4]
        with pytest.raises(ConfigError, match="save_period"):
            ws.training("run", config={"save_period": 2})


def test_what_an_earlier_attempt_left_open_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Orphans of a crash before the first set are in every later one: the log cannot tell them from
    environments that wait. Who took the first of the restored sessions went on with another
    environment than the weights had seen."""
    with open_workspace(tmp_path) as ws:
        with ws.training("run"):
            opened(ws, "desk-1")
        with ws.training("run") as run, caplog.at_level(logging.WARNING, "steplog.training"):
            opened(ws, "desk-2")
            run.checkpoint(1, **STATE)
            run.checkpoint(2, **STATE)
        assert caplog.text.count("'desk-1' was left open") == 1
        assert "'desk-2'" not in caplog.text
        with ws.training("run") as run:
            restored = run.restore_latest(**STATE)
            assert restored is not None
            assert set(restored.sessions) == {"desk-1", "desk-2"}
            opened(ws, "desk-3")
            restored = run.restore_latest(**STATE)
            assert restored is not None
            assert restored.later_sessions == ("desk-3",)
            left = ws.void_sessions(["desk-1", *restored.later_sessions], reason="gone", fence=True)
            assert [one.session for one in left] == ["desk-1", "desk-3"]
            entry = run.checkpoints.read_manifest(run.checkpoint(3, **STATE).wait()).set
            assert entry is not None
            assert set(entry.sessions) == {"desk-2"}


def test_environments_may_be_there_before_their_first_trainer(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws:
        opened(ws, "desk")
        with ws.training("run") as run:
            entry = run.checkpoints.read_manifest(run.checkpoint(1, **STATE).wait()).set
            assert entry is not None
            assert set(entry.sessions) == {"desk"}


def test_the_sessions_that_ranks_name_are_joined() -> None:
    assert joined_sessions([None, None]) is None
    assert joined_sessions([["a", "b"], [], ["b", "c"]]) == ["a", "b", "c"]
    with pytest.raises(CheckpointError, match="others do not"):
        joined_sessions([["a"], None])


@pytest.mark.parametrize("sessions", ["desk", 3, [3], [None]])
def test_sessions_that_are_no_ids_are_refused(tmp_path: Path, sessions: Any) -> None:
    with open_workspace(tmp_path) as ws, ws.training("run") as run:
        with pytest.raises(TypeError):
            run.checkpoint(1, **STATE, sessions=sessions)
        run.checkpoint(1, **STATE)


def test_voiding_that_a_restore_sets_aside_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_workspace(tmp_path) as ws:
        with ws.training("run") as run:
            for name in ("desk-1", "desk-2"):
                opened(ws, name).release()
            run.checkpoint(1, **STATE)
            voided = ws.void_sessions(SessionFilter(id_prefix="desk-1"), reason="bad weights")
            assert [one.session for one in voided] == ["desk-1"]
        with ws.training("run") as run, caplog.at_level(logging.WARNING, "steplog.training"):
            restored = run.restore_latest(**STATE)
            assert restored is not None
            assert restored.unvoided_sessions == ("desk-1",)
            assert "'desk-1' was voided after set" in caplog.text
            assert ws.session("desk-1").voided is None


def test_a_fork_of_a_training_has_no_sets_of_its_own(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws:
        with ws.training("run") as run:
            run.checkpoint(1, **STATE)
            run.restore_latest(**STATE)
        ws.fork("run", ws.session("run").head.step - 1, name="trial")
        with ws.training("trial") as run:
            assert run.restore_latest(**STATE) is None
            run.checkpoint(1, **STATE)


MODEL = torch.nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"extra": torch.ones(3)}, "extra takes a dict, not Tensor"),
        ({"extra": [torch.ones(3)]}, "extra takes a dict, not list"),
        ({"extra": {1: torch.ones(3), "1": torch.ones(3)}}, "extra has the name 1"),
        ({"model": MODEL, "optimizer": 3}, r"optimizer takes a torch\.optim\.Optimizer, or a dict"),
        ({"model": 3}, r"model takes a torch\.nn\.Module, or a dict of such, not int"),
        ({"model": MODEL, "generators": [torch.Generator()]}, "generators takes a dict, not list"),
    ],
)
def test_another_type_is_told_in_our_words(tmp_path: Path, given: Any, words: str) -> None:
    """ "Boolean value of Tensor is ambiguous", "'list' object has no attribute 'items'"."""
    with open_workspace(tmp_path) as ws, ws.training("run") as run:
        with pytest.raises((CheckpointError, StateError), match=words):
            run.checkpoint(1, **given)
        run.checkpoint(1, model=MODEL)
        with pytest.raises((CheckpointError, StateError), match=words):
            run.restore_latest(**given)


@pytest.mark.parametrize("name", [3, None, b"x", "", "a\n", "x" * 256])
def test_a_name_that_no_training_can_have(tmp_path: Path, name: Any) -> None:
    with open_workspace(tmp_path) as ws, pytest.raises(ConfigError, match="a training's name"):
        ws.training(name)


@pytest.mark.parametrize("fresh", ["no", 0, None])
def test_fresh_is_true_or_false(tmp_path: Path, fresh: Any) -> None:
    """`fresh="no"` was taken, and began anew."""
    with open_workspace(tmp_path) as ws, pytest.raises(ConfigError, match="fresh is"):
        ws.training("run", fresh=fresh)


def test_a_set_of_nothing_is_refused(tmp_path: Path) -> None:
    """The model was forgotten, and a set without weights was committed."""
    with open_workspace(tmp_path) as ws, ws.training("run") as run:
        for given in ({}, {"model": {}, "optimizer": {}, "extra": {}}, {"generators": {}}):
            with pytest.raises(CheckpointError, match="step 1 would hold nothing"):
                run.checkpoint(1, **given)
        run.checkpoint(1, progress={"tokens": 1})
        run.checkpoint(2, sessions=[])
        run.checkpoint(3, data={"at": 1})


def test_what_alone_is_there_is_named_alone(tmp_path: Path) -> None:
    """ "it alone has []", "saved, not given: []"."""
    with open_workspace(tmp_path) as ws, ws.training("run") as run:
        run.checkpoint(1, model=MODEL)
        with pytest.raises(CheckpointError, match=r"to be loaded alone has 'extra\.q'") as one:
            run.restore_latest(model=MODEL, extra={"q": torch.ones(1)})
        assert "it alone" not in one.value.message
        with pytest.raises(StateError, match=r"differ: given, not saved: 'g'\."):
            run.restore_latest(model=MODEL, generators={"g": torch.Generator()})


def test_what_a_restore_was_not_given_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An optimizer was left out at the restore: its moments began anew, and nobody was told."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    state = {"model": model, "optimizer": optimizer, "data": SampleOrder(8, batch_size=2, seed=1)}
    with open_workspace(tmp_path) as ws, caplog.at_level(logging.WARNING, "steplog.training"):
        with ws.training("run") as run:
            first = run.checkpoint(1, **state).wait()
            run.restore_latest(**state)
        assert not caplog.records
        with ws.training("run") as run:
            run.restore_latest(model=model)
        assert f"set {first.id} holds data, optimizer, which this restore was not given" in (
            caplog.text
        )
        caplog.clear()
        with ws.training("arm") as run:
            run.branch_from("run", first.id, optimizer=optimizer, model=model)
        assert "holds data, which" in caplog.text


def test_an_order_for_one_rank_among_several_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Two ranks took the same samples, all of them twice, without a word."""
    rules = SaveRules("run", fresh=False)
    with caplog.at_level(logging.WARNING, "steplog.training"):
        for data in (SampleOrder(9, batch_size=3, seed=1, world_size=2), {"at": 1}, None):
            rules.warn_of_shares(data, 2)
        rules.warn_of_shares(SampleOrder(9, batch_size=3, seed=1), 1)
        assert not caplog.records
        rules.warn_of_shares(SampleOrder(9, batch_size=3, seed=1), 2)
        rules.warn_of_shares(SampleOrder(9, batch_size=3, seed=1), 2)
    assert caplog.text.count("each takes every sample") == 1
