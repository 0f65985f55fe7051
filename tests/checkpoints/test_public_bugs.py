"""Faults of other checkpoint libraries, as they were reported, shown not to be ours.

Those of a whole kind of their own have tests elsewhere: kills between save and purge (Lightning
#1150) in test_sets_kills.py, ranks in test_sets_ranks.py (Megatron-LM #6858, Automodel #3437,
pytorch #157781), files that are gone in test_sets_restore.py (verl #4667, #7952).
"""

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: checkpoint sets not shown")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from eventlog.errors import CheckpointError  # noqa: E402
from replay.workspace import Workspace  # noqa: E402
from snapshots.checkpoint_config import CheckpointConfig  # noqa: E402
from snapshots.checkpoints.object_folder import ObjectFolder  # noqa: E402
from snapshots.sample_order import SampleOrder  # noqa: E402
from tests.support.set_toy import Toy, toy_at  # noqa: E402
from tests.support.torch_states import fingerprint  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

NAME = "run"
BACKGROUND = CheckpointConfig(async_save=True)


def test_the_step_is_that_of_the_call_however_slow_the_disk(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a save read the live step: the tracker named a later one (Megatron-Bridge #3267).

    Torch's values that changed after the call were saved too (pytorch #144657).
    """
    runs, keep = threading.Event(), ObjectFolder.keep_objects

    def slow(folder: ObjectFolder, written: Any) -> None:
        assert runs.wait(30)
        keep(folder, written)

    monkeypatch.setattr(ObjectFolder, "keep_objects", slow)
    toy = Toy()
    progress = {"step": toy.advance()}
    with ws.training(NAME, config=BACKGROUND) as run:
        handle = run.checkpoint(toy.step, **toy.objects(), progress=progress)
        for _ in range(3):
            progress["step"] = toy.advance()
        runs.set()
        ref = handle.wait(30)
        assert (ref.training_step, handle.step) == (1, 1)
        assert run.checkpoints.head() == ref
        again = Toy()
        restored = run.restore_latest(**again.objects())
        assert restored is not None
        assert (restored.step, restored.progress) == (1, {"step": 1})
        again.step = 1
        assert again.seen() == toy_at(1)


def test_each_save_has_the_moments_that_the_optimizer_holds_then(ws: Workspace) -> None:
    """A worker that stayed kept handles of the first moments for ever (NeMo RL #4183)."""
    toy = Toy()
    with ws.training(NAME, config=BACKGROUND) as run:
        saved = []
        for _ in range(4):
            toy.advance()
            for state in toy.optimizer.state.values():
                for key, value in state.items():
                    state[key] = value.clone()  # elsewhere in memory, as after an offload
            saved.append(run.checkpoint(toy.step, **toy.objects()).wait(30))
        for ref in saved:
            again = Toy()
            restored = run.restore(ref.id, **again.objects())
            again.step = restored.step
            assert again.seen() == toy_at(ref.training_step)


def test_what_was_restored_into_is_what_is_saved_next(ws: Workspace) -> None:
    """Loading bound other objects: a second resume saved what the first had loaded (torchtitan
    #647, pytorch #138575)."""

    class Counter:
        def __init__(self) -> None:
            self.at = torch.zeros(2)
            self.seen: dict[str, list[int]] = {"ids": []}

        def state_dict(self) -> dict[str, Any]:
            return {"at": self.at, "seen": self.seen}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.at, self.seen = state["at"], state["seen"]

    step = 0
    for _ in range(4):
        toy, counter, order = Toy(), Counter(), SampleOrder(60, batch_size=10, seed=7)
        extra = {"counter": counter, "ema": torch.zeros(3)}
        if step:
            # Of the same form as what was saved: values are put back in their places.
            counter.seen["ids"] = [0] * step
        with ws.training(NAME) as run:
            restored = run.restore_latest(**toy.objects(), data=order, extra=extra)
            assert (restored is None) is (step == 0)
            toy.step = step
            assert toy.seen() == toy_at(step)
            assert counter.at.tolist() == [step, step]
            assert counter.seen == {"ids": list(range(step))}
            assert extra["ema"].tolist() == [step] * 3
            assert len(order.consumed_ids(0)) == 10 * step
            for _ in range(2):  # the second time is what counts
                toy.advance()
                counter.at += 1
                counter.seen["ids"].append(step)
                extra["ema"] += 1
                order.next_batch()
                step += 1
                run.checkpoint(step, **toy.objects(), data=order, extra=extra)
            if step == 6:
                return  # the epoch's end


def test_no_sample_is_dropped_or_comes_twice_when_resumed_three_times(ws: Workspace) -> None:
    """In one epoch, and at its end (torchdata #1437, #1251; verl #7401; D3). A loader's iterator
    draws from torch when it begins, and the next draws were one ahead (Megatron-Bridge #5257)."""
    samples = TensorDataset(torch.arange(60))

    def run_to(training: str, stops: list[int]) -> list[Any]:
        seen: list[Any] = []
        for stop in stops:
            order = SampleOrder(60, batch_size=10, seed=7)
            loader = DataLoader(samples, batch_sampler=order)
            torch.manual_seed(1)
            with ws.training(training) as run:
                restored = run.restore_latest(data=order)
                step = 0 if restored is None else restored.step
                while step < stop:
                    batches = iter(loader)
                    if restored is not None:
                        restored.restore_random()
                        restored = None
                    for (ids,) in batches:
                        seen.append((ids.tolist(), torch.rand(3).tolist()))
                        step += 1
                        if step == stop:
                            break
                run.checkpoint(step, data=order)
        return seen

    whole = run_to("whole", [14])
    parts = run_to("parts", [3, 6, 7, 14])
    assert [ids for ids, _ in parts] == [ids for ids, _ in whole]
    assert sorted(one for ids, _ in parts[:6] for one in ids) == list(range(60))
    assert sorted(one for ids, _ in parts[6:12] for one in ids) == list(range(60))
    # What the iterator of an epoch draws when it begins is drawn once, resumed or not.
    assert [draws for _, draws in parts[:6]] == [draws for _, draws in whole[:6]]


def test_settings_that_an_optimizer_got_later_keep_their_defaults(ws: Workspace) -> None:
    """A release gave AdamW a setting, and what was saved before did not load (pytorch #146157)."""
    toy = Toy()
    toy.advance()
    for group in toy.optimizer.param_groups:
        del group["maximize"]
        group.pop("decoupled_weight_decay", None)  # the one it was, which torch 2.6 has not yet
    with ws.training(NAME) as run:
        run.checkpoint(1, **toy.objects())
        again = Toy()
        run.restore_latest(**again.objects())
    for group in again.optimizer.param_groups:
        assert group["maximize"] is False
        assert group.get("decoupled_weight_decay", True)
    again.step = 1
    assert again.seen() == toy_at(1)
    again.advance()
    assert again.seen() == toy_at(2)


def test_policies_are_published_beside_a_save(ws: Workspace) -> None:
    """Two threads write notes into the training session; each note is there once."""
    toy = Toy()
    with ws.training(NAME, config=BACKGROUND) as run:
        for version in range(8):
            toy.advance()
            handle = run.checkpoint(toy.step, **toy.objects())
            run.publish_policy(version, toy.model)
            handle.wait(30)
        assert run.checkpoints.find_checkpoint().training_step == 8
        for version in (0, 3, 7):
            again = Toy()
            run.restore_policy(version, again.model)
            expected = Toy()
            while expected.step <= version:
                expected.advance()
            assert fingerprint(again.model.state_dict()) == fingerprint(expected.model.state_dict())
    assert all(report.verdict == "ok" for report in ws.check())


@pytest.mark.parametrize("own", ["run", "checkpoint/"])
def test_sessions_of_steplogs_own_have_no_part_in_a_set(ws: Workspace, own: str) -> None:
    """A restore would claim the training from the trainer that restores."""
    with ws.training(NAME) as run:
        run.checkpoint(1, **Toy().objects())
        name = next(info.session_id for info in ws.sessions() if info.session_id.startswith(own))
        with pytest.raises(CheckpointError, match="steplog's own"):
            run.checkpoint(2, **Toy().objects(), sessions=[name])
        assert run.checkpoint(2, **Toy().objects()).wait(30).training_step == 2
