"""The airline sessions over their 2.5 MB state: every changing step has its published hash."""

from pathlib import Path
from typing import Any

import pytest

import steplog
from tests.support.airline import (
    LiveAirline,
    PublishedHash,
    first_state,
    gold_sessions,
    published_hash,
)


@pytest.mark.parametrize("trial", [0, 1])
def test_each_changing_step_replays_to_the_published_hash(tmp_path: Path, trial: int) -> None:
    """Trial 0 captures the state at each return; in trial 1 tools that only read are said pure."""
    expected: list[tuple[str, int, str]] = []
    live = LiveAirline()
    with steplog.open_workspace(tmp_path) as ws:
        for gold in gold_sessions(trial):
            if not any(step["changed_records"] for step in gold.steps):
                continue
            with ws.record(gold.name, environment="airline", state=lambda: live.state) as session:
                for row in gold.steps:
                    changed = row["changed_records"]
                    called = session.record_tool_call(
                        row["tool"],
                        row["arguments"],
                        call_id=row["tool_call_id"],
                        effects="pure" if trial == 1 and not changed else "unknown",
                    )
                    live.change(changed)
                    step = session.record_tool_return(called, None)
                    if changed:
                        expected.append((gold.name, step, row["db_sha256_after"]))
            live.begin_again()
    assert len(expected) == (41, 47)[trial]
    hashes = PublishedHash()
    with steplog.open_workspace(tmp_path) as ws:
        assert hashes.of(state_at(ws, expected[0][0], 0)) == gold.hash_before
        for name, step, published in expected:
            assert hashes.of(state_at(ws, name, step)) == published, (name, step)
        name, step, published = expected[-1]
        assert published_hash(state_at(ws, name, step)) == published
        assert len({blob.digest for blob in ws.blobs.list_blobs()}) == 1, "the first state, shared"


def state_at(ws: steplog.Workspace, name: str, step: int) -> dict[str, Any]:
    state = ws.replay(name, step).opaque_state  # plain values only: nothing to make live
    assert isinstance(state, dict)
    return state


def test_the_hash_by_records_is_the_published_one() -> None:
    state = first_state()
    hashes = PublishedHash()
    assert hashes.of(state) == published_hash(state)
    user = state["users"][min(state["users"])]
    user["note"] = "é \u2028"
    assert hashes.of(state) == published_hash(state)
