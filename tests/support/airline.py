"""The airline sessions: the published first state, and per step the records that changed."""

import json
from collections.abc import Iterator
from copy import deepcopy
from hashlib import sha256
from typing import Any, Final, NamedTuple

from eventlog.canonical import encode
from tests.support.data import data_path

TABLES = ("flights", "reservations", "users")
_MISSING: Final = object()


class GoldSession(NamedTuple):
    """One recorded session: its task and the steps, as the data has them."""

    name: str
    hash_before: str
    steps: list[dict[str, Any]]


def first_state() -> dict[str, Any]:
    """A fresh copy of the 2.5 MB state that every session begins with."""
    return {
        table: json.loads(data_path("states", "tau_bench_airline", f"{table}.json").read_text())
        for table in TABLES
    }


def published_hash(state: dict[str, Any]) -> str:
    """The hash as the data's recipe has it: SHA-256 of sorted compact JSON, not ASCII-escaped."""
    return sha256(_json(state).encode("utf-8")).hexdigest()


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class PublishedHash:
    """`published_hash`, with the text of each record written once: few differ between states."""

    def __init__(self) -> None:
        self._texts: dict[bytes, str] = {}

    def of(self, state: dict[str, Any]) -> str:
        """The hash of a state; records are taken for the same only where their bytes are."""
        tables = (
            f"{_json(name)}:{{{','.join(self._rows(state[name]))}}}" for name in sorted(state)
        )
        return sha256(f"{{{','.join(tables)}}}".encode()).hexdigest()

    def _rows(self, table: dict[str, Any]) -> Iterator[str]:
        for key in sorted(table):
            data = encode([key, table[key]])
            text = self._texts.get(data)
            if text is None:
                text = self._texts[data] = f"{_json(key)}:{_json(table[key])}"
            yield text


def gold_sessions(trial: int) -> Iterator[GoldSession]:
    """The sessions of one trial."""
    path = data_path("traces", "tau_bench_airline", f"gold.trial{trial}.jsonl")
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            name = f"airline/trial{trial}/task{row['task_id']}"
            yield GoldSession(name, row["db_sha256_before"], row["steps"])


class LiveAirline:
    """The live state of one session after the other."""

    def __init__(self) -> None:
        self.state = first_state()
        self._before: dict[tuple[str, str], Any] = {}

    def change(self, changed: dict[str, Any]) -> None:
        """Do what a step's `changed_records` say (`table/key` -> value)."""
        for place, value in changed.items():
            table, key = place.split("/", 1)
            assert value is not None, "no session removes a record"
            self._before.setdefault((table, key), self.state[table].get(key, _MISSING))
            self.state[table][key] = deepcopy(value)

    def begin_again(self) -> None:
        """Back to the first state, also in the order of its keys: added records stand last."""
        for (table, key), value in self._before.items():
            if value is _MISSING:
                del self.state[table][key]
            else:
                self.state[table][key] = value
        self._before.clear()
