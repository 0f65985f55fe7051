"""What is refused leaves model, optimizer and extra as they were; and what cannot be told apart."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: checkpoint sets not shown")

from eventlog.errors import CheckpointError  # noqa: E402
from replay.workspace import Workspace  # noqa: E402
from snapshots.checkpoint_store import CheckpointStore  # noqa: E402
from snapshots.checkpoints.manifest import Manifest  # noqa: E402
from snapshots.shards.room import room_beside  # noqa: E402
from snapshots.training_run import TrainingRun  # noqa: E402
from tests.support.torch_states import fingerprint  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

LAYERS = 4


def network(seed: int) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(*(torch.nn.Linear(200, 200) for _ in range(LAYERS)))


def trained(seed: int) -> dict[str, Any]:
    """A model, an optimizer that has stepped, and what else is kept."""
    model = network(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1 * seed)
    model(torch.randn(2, 200)).sum().backward()
    optimizer.step()
    averaged = torch.optim.swa_utils.AveragedModel(model)
    more = {"mean": torch.full((500,), float(seed)), "nested": {"t": [torch.ones(9) * seed]}}
    return {"model": model, "optimizer": optimizer, "extra": {"ema": averaged, **more, "n": seed}}


def seen(objects: dict[str, Any]) -> Any:
    extra = {**objects["extra"], "ema": objects["extra"]["ema"].state_dict()}
    optimizer = objects["optimizer"].state_dict()
    return fingerprint({"m": objects["model"].state_dict(), "o": optimizer, "e": extra})


def damage(store: CheckpointStore, manifest: Manifest, name: str) -> None:
    """One bit of the object that holds this tensor."""
    digest = manifest.tensors[name].chunks[0].parts[0].stored.digest
    path = store.folder / "objects" / digest[:2] / digest
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGED = [
    "model.0.weight",
    f"model.{LAYERS - 1}.weight",
    "optimizer.default.state.2.weight.exp_avg",
    "extra.ema.module.1.weight",
    "extra.nested.t.0",
]


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_tensor_leaves_no_mix_of_two_trainings(ws: Workspace, name: str) -> None:
    """Half the layers were the checkpoint's, the others those of before."""
    with ws.training("run") as run:
        saved = trained(1)
        ref = run.checkpoint(1, **saved).wait(30)
        damage(run.checkpoints, run.checkpoints.read_manifest(ref), name)
        live = trained(2)
        before = seen(live)
        with pytest.raises(CheckpointError, match="is damaged"):
            run.restore_latest(**live)
        assert seen(live) == before


def test_a_policy_that_cannot_be_read_leaves_the_model_as_it_was(ws: Workspace) -> None:
    with ws.training("run") as run:
        run.publish_policy(1, network(1))
        store = CheckpointStore(run.checkpoints.folder, "policies-run")
        head = store.head()
        assert head is not None
        damage(store, store.read_manifest(head), "model.3.weight")
        live = network(2)
        before = fingerprint(live.state_dict())
        with pytest.raises(CheckpointError, match="is damaged"):
            run.restore_policy(1, live)
        assert fingerprint(live.state_dict()) == before


def test_what_is_loaded_comes_into_the_users_own_objects(ws: Workspace) -> None:
    """Tensors are set in place, and values where they stood; views of them see it."""
    with ws.training("run") as run:
        saved = trained(1)
        run.checkpoint(1, **saved)
        live = trained(2)
        mean, inner = live["extra"]["mean"], live["extra"]["nested"]["t"]
        tensor, parameter = inner[0], live["model"][0].weight
        run.restore_latest(**live)
        assert seen(live) == seen(saved)
        assert live["extra"]["mean"] is mean
        assert live["extra"]["nested"]["t"] is inner
        assert inner[0] is tensor
        assert live["model"][0].weight is parameter
        assert live["extra"]["n"] == 1


def test_moments_come_back_in_the_order_of_the_groups(ws: Workspace) -> None:
    """In that of a set of names, which differs by process: ranks saved the same in other bytes."""
    with ws.training("run") as run:
        saved = trained(1)
        run.checkpoint(1, **saved)
        live = trained(2)
        run.restore_latest(**live)
        assert [id(one) for one in live["optimizer"].state] == [
            id(one) for group in live["optimizer"].param_groups for one in group["params"]
        ]


def test_what_has_no_memory_is_refused(ws: Workspace) -> None:
    """A model of device meta was "restored", and held nothing."""
    with ws.training("run") as run:
        run.checkpoint(1, model=network(1), extra={"t": torch.ones(5)})
        with pytest.raises(CheckpointError, match="no memory") as caught:
            run.restore_latest(model=network(2).to("meta"), extra={"t": torch.ones(5)})
        assert "to_empty" in caught.value.hint
        live = network(2)
        before = fingerprint(live.state_dict())
        with pytest.raises(CheckpointError, match=r"'extra\.t': it is one item, expanded"):
            run.restore_latest(model=live, extra={"t": torch.ones(1).expand(5)})
        assert fingerprint(live.state_dict()) == before


def test_room_is_of_the_same_form_and_shares_nothing() -> None:
    base = torch.randn(3, 4, dtype=torch.complex64)
    given = {"a": base.T, "b": (base.conj(), [base.real, 5]), "m": network(1).state_dict()}
    room = room_beside(given, "x")
    assert room["m"]._metadata == given["m"]._metadata
    assert room["b"][1][1] == 5
    for mine, theirs in ((room["a"], base.T), (room["b"][0], base), (room["b"][1][0], base.real)):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        assert mine.data_ptr() != theirs.data_ptr()


@pytest.mark.parametrize("name", [1, None, 2.5, ("a",)])
def test_a_name_that_is_no_text_is_refused(ws: Workspace, name: object) -> None:
    """`{1: a, "1": b}` was one model, and a was lost."""
    with ws.training("run") as run:
        run.checkpoint(1, model=network(1))
        for what, one in (
            ("model", network(1)),
            ("optimizer", torch.optim.SGD(network(1).parameters())),
        ):
            for act in (lambda given: run.checkpoint(2, **given), _restoring(run)):
                with pytest.raises(CheckpointError, match=rf"{what} has the name"):
                    act({what: {name: one, str(name): one}})


def _restoring(run: TrainingRun) -> Any:
    return lambda given: run.restore_latest(**given)


def test_two_parameters_of_one_name_are_refused(ws: Workspace) -> None:
    outer = torch.nn.ModuleDict({"b": torch.nn.Linear(2, 2)})
    with ws.training("run") as run, pytest.raises(CheckpointError, match=r"'a\.b\.weight'"):
        run.checkpoint(1, model={"a": outer, "a.b": torch.nn.Linear(2, 2)})


def test_state_of_a_parameter_in_no_group_is_refused_when_it_is_saved(ws: Workspace) -> None:
    """It was saved, and the restore was a KeyError after the model was loaded."""
    model = network(1)
    groups = [{"params": layer.parameters()} for layer in model]
    optimizer = torch.optim.AdamW(groups)
    model(torch.randn(2, 200)).sum().backward()
    optimizer.step()
    left = optimizer.param_groups.pop()["params"]
    with ws.training("run") as run:
        with pytest.raises(CheckpointError, match=r"state of '3\.weight', which is in none"):
            run.checkpoint(1, model=model, optimizer=optimizer)
        for one in left:
            del optimizer.state[one]
        run.checkpoint(1, model=model, optimizer=optimizer)
        assert run.restore_latest(model=model, optimizer=optimizer) is not None
        optimizer.state["shared"] = {"t": torch.ones(1)}
        with pytest.raises(CheckpointError, match="under 'shared', which is no parameter"):
            run.checkpoint(2, model=model, optimizer=optimizer)


class Lazy:
    """Its state has another key once it was used."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def test_an_object_whose_state_grows_is_told_what_to_do(ws: Workspace) -> None:
    used = Lazy()
    used.state = {"scale": 2.0}
    with ws.training("run") as run:
        run.checkpoint(1, extra={"lazy": used})
        with pytest.raises(CheckpointError, match=r"extra\.lazy\.scale") as caught:
            run.restore_latest(extra={"lazy": Lazy()})
        assert "state only as it is used" in caught.value.hint
        assert "progress=" in caught.value.hint
