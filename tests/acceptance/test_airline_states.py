"""The airline sessions over their 2.5 MB state: every changing step has its published hash."""

from pathlib import Path

import pytest

import steplog
from tests.support.airline import apply_changes, first_state, gold_sessions, published_hash


@pytest.mark.parametrize("trial", [0, 1])
def test_each_changing_step_replays_to_the_published_hash(tmp_path: Path, trial: int) -> None:
    expected: list[tuple[str, int, str]] = []
    with steplog.open_workspace(tmp_path) as ws:
        for gold in gold_sessions(trial):
            if not any(step["changed_records"] for step in gold.steps):
                continue
            state = first_state()
            with ws.record(gold.name, environment="airline", state=state) as session:
                for row in gold.steps:
                    called = session.record_tool_call(
                        row["tool"], row["arguments"], call_id=row["tool_call_id"]
                    )
                    apply_changes(state, row["changed_records"])
                    step = session.record_tool_return(called, None, state=state)
                    if row["changed_records"]:
                        expected.append((gold.name, step, row["db_sha256_after"]))
    assert len(expected) > 20
    with steplog.open_workspace(tmp_path) as ws:
        first, _, _ = expected[0]
        seed_state = ws.replay(first, 0).state
        assert isinstance(seed_state, dict)
        assert published_hash(seed_state) == gold.hash_before
        for name, step, published in expected:
            state = ws.replay(name, step).state  # type: ignore[assignment]
            assert published_hash(state) == published, (name, step)
