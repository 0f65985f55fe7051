"""The airline sessions: the published first state, and per step the records that changed."""

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

from tests.support.data import data_path

TABLES = ("flights", "reservations", "users")


class GoldSession(NamedTuple):
    """One recorded session: its task and the steps, as the data has them."""

    name: str
    hash_before: str
    steps: list[dict[str, Any]]


@cache
def _first_state_text() -> str:
    tables = {
        table: json.loads(data_path("states", "tau_bench_airline", f"{table}.json").read_text())
        for table in TABLES
    }
    return json.dumps(tables)


def first_state() -> dict[str, Any]:
    """A fresh copy of the 2.5 MB state that every session begins with."""
    state: dict[str, Any] = json.loads(_first_state_text())
    return state


def published_hash(state: dict[str, Any]) -> str:
    """The hash as the data's recipe has it: SHA-256 of sorted compact JSON, not ASCII-escaped."""
    text = json.dumps(state, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(text.encode("utf-8")).hexdigest()


def gold_sessions(trial: int) -> Iterator[GoldSession]:
    """The sessions of one trial."""
    path = data_path("traces", "tau_bench_airline", f"gold.trial{trial}.jsonl")
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            name = f"airline/trial{trial}/task{row['task_id']}"
            yield GoldSession(name, row["db_sha256_before"], row["steps"])


def apply_changes(state: dict[str, Any], changed: dict[str, Any]) -> None:
    """Do to the live state what a step's `changed_records` say (`table/key` -> value or None)."""
    for place, value in changed.items():
        table, key = place.split("/", 1)
        if value is None:
            del state[table][key]
        else:
            state[table][key] = deepcopy(value)
