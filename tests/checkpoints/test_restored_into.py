"""What a set is restored into is what was saved: other kinds, shapes and dtypes are told by name.

An AdamW's moments in an SGD were no error; a wrong shape was told in the words of a save.
"""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

from eventlog.errors import CheckpointError  # noqa: E402
from replay.workspace import Workspace  # noqa: E402
from snapshots.shards import optimizer_state  # noqa: E402
from snapshots.training_state import encode_state  # noqa: E402
from tests.support.set_toy import Toy, toy_at  # noqa: E402
from tests.support.torch_states import fingerprint  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

NAME = "run/1"


def without_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save as was saved before the kind was."""

    def encode(value: dict[str, Any], name: str) -> bytes:
        value.pop("kind")
        return encode_state(value, name)

    monkeypatch.setattr(optimizer_state, "encode_state", encode)


def refused(ws: Workspace, **into: Any) -> CheckpointError:
    """What a restore into these raises; they are as they were."""
    before = [repr(fingerprint(one.state_dict())) for one in into.values() if _has_state(one)]
    with ws.training(NAME) as run, pytest.raises(CheckpointError) as caught:
        run.restore_latest(**into)
    assert [repr(fingerprint(one.state_dict())) for one in into.values() if _has_state(one)] == (
        before
    )
    assert "save" not in caught.value.message.replace("saved", "")
    assert "committed" not in caught.value.hint
    assert "convert_dtype" not in caught.value.hint
    return caught.value


def _has_state(one: object) -> bool:
    return hasattr(one, "state_dict")


def sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def adam(model: Any) -> Any:
    return torch.optim.Adam(model.parameters())


@pytest.mark.parametrize("build", [sgd, adam])
def test_another_kind_of_optimizer_is_refused_by_name(
    ws: Workspace, build: Callable[[Any], Any]
) -> None:
    """SGD got AdamW's moments, and Adam has the same ones and another decay."""
    toy = Toy()
    toy.advance()
    with ws.training(NAME) as run:
        run.checkpoint(1, **toy.objects())
    into = Toy()
    optimizer = build(into.model)
    error = refused(ws, model=into.model, optimizer=optimizer)
    assert f"was saved as 'AdamW' and is '{type(optimizer).__name__}' here" in error.message
    assert not optimizer.state


def test_another_kind_is_told_by_its_options_where_it_was_not_kept(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_kind(monkeypatch)
    toy = Toy()
    toy.advance()
    with ws.training(NAME) as run:
        run.checkpoint(1, **toy.objects())
    into = Toy()
    error = refused(ws, model=into.model, optimizer=sgd(into.model))
    for option in ("betas", "eps", "momentum", "nesterov"):
        assert option in error.message


def test_settings_without_a_kind_are_read(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    without_kind(monkeypatch)
    toy = Toy()
    toy.advance()
    with ws.training(NAME) as run:
        run.checkpoint(1, **toy.objects())
        again = Toy()
        run.restore_latest(**again.objects())
    assert again.seen() == toy_at(1)


def test_options_that_torch_adds_and_renames_still_load(ws: Workspace) -> None:
    """A release gave AdamW an option, and what was saved before did not load (pytorch #146157)."""
    toy = Toy()
    toy.advance()
    for group in toy.optimizer.param_groups:
        group.pop("decoupled_weight_decay", None)  # the one it was, which torch 2.6 has not yet
        del group["capturable"]
        group["old_name_of_fused"] = group.pop("fused")
        group["old_name_of_foreach"] = group.pop("foreach")
    with ws.training(NAME) as run:
        run.checkpoint(1, model=toy.model, optimizer=toy.optimizer)
        again = Toy()
        run.restore_latest(model=again.model, optimizer=again.optimizer)
    for group in again.optimizer.param_groups:
        assert group.get("decoupled_weight_decay", True)
        assert group["capturable"] is False
    assert repr(fingerprint(again.model.state_dict())) == repr(fingerprint(toy.model.state_dict()))


def test_another_shape_and_dtype_are_named_with_both_sides(ws: Workspace) -> None:
    extra = {"ema": torch.zeros(4), "best": 0.5}
    with ws.training(NAME) as run:
        run.checkpoint(1, model=torch.nn.Linear(3, 4), extra=extra)
    wide = refused(ws, model=torch.nn.Linear(3, 5), extra=extra)
    assert "'model.weight' is float32 of shape (4, 3) in checkpoint" in wide.message
    assert "and float32 of shape (5, 3) where" in wide.message
    assert (wide.tensor, wide.hint[:32]) == ("model.weight", "build the model as it was saved,")
    half = refused(ws, model=torch.nn.Linear(3, 4).bfloat16(), extra=extra)
    assert "and bfloat16 of shape (4, 3) where" in half.message
    ema = refused(ws, model=torch.nn.Linear(3, 4), extra={"ema": torch.zeros(4, 1), "best": 0.0})
    assert ema.tensor == "extra.ema"
    none = refused(ws, model=torch.nn.Linear(3, 4), extra={"ema": None, "best": 0.0})
    assert "'extra.ema' is float32 of shape (4,) in checkpoint" in none.message
    assert "and no tensor where" in none.message


def test_a_policy_version_into_another_dtype_is_named(ws: Workspace) -> None:
    with ws.training(NAME) as run:
        run.publish_policy(1, torch.nn.Linear(3, 4).bfloat16())
        with pytest.raises(CheckpointError, match=r"'model.weight' is bfloat16 .* float32 of"):
            run.restore_policy(1, torch.nn.Linear(3, 4))
