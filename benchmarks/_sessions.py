"""Long sessions and large workspaces, made by large appends, for the benchmarks of replay."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from eventlog.canonical import digest_of
from eventlog.codec import EncodedEvent, encode_event
from eventlog.content import argument_content, result_content
from eventlog.event import (
    Body,
    Event,
    LineHead,
    SessionSeeded,
    StateChange,
    StateUnknown,
    ToolCalled,
    ToolReturned,
)
from eventlog.ids import mint_event_id
from eventlog.log import EventLog
from eventlog.recording.state_capture import StateCapture
from replay.workspace import open_workspace
from snapshots.snapshot import Snapshot

BATCH: Final = 2_000
TIME_US: Final = 1_800_000_000_000_000


class SessionBuilder:
    """Makes one session's events: a seed, then calls and returns that change a small state."""

    def __init__(self, log: EventLog, name: str) -> None:
        self._head = LineHead.before_seed(name)
        self._calls = 0
        self.state: dict[str, Any] = {
            "orders": {f"o{number}": {"status": "new", "n": 0} for number in range(4)},
            "count": 0,
            "last": None,
        }
        self.capture, content = StateCapture.of_first(self.state)
        seeded = SessionSeeded("bench", reducer="captured", reducer_version="1")
        self._first = self._made(
            seeded._replace(initial_state=content, writer=log.writer_id), "system"
        )

    @property
    def head(self) -> LineHead:
        """Where the session stands."""
        return self._head

    def events(self, count: int) -> Iterator[EncodedEvent]:
        """The next `count` events, from the seed on."""
        for number in range(count):
            if self._head.step == 0 and number == 0:
                yield self._first
            elif (self._head.step + 1) % 2:
                yield self._returned()
            else:
                arguments = argument_content({"order": f"o{self._calls % 4}"})
                yield self._made(ToolCalled("refund", arguments, f"c{self._calls}"), "agent")

    def _returned(self) -> EncodedEvent:
        order = f"o{self._calls % 4}"
        self._calls += 1
        self.state["orders"][order]["n"] += 1
        self.state["count"] += 1
        self.state["last"] = order
        captured = self.capture.change_to(self.state)
        self.capture.adopt(captured)
        body = ToolReturned(self._head.step, "ok", result_content("done"), duration_us=12)
        return self._made(body, "tool", captured.change)

    def _made(
        self, body: Body, actor: str, change: StateChange | StateUnknown | None = None
    ) -> EncodedEvent:
        event = Event.following(
            self._head,
            body,
            event_id=mint_event_id(),
            time=TIME_US,
            actor=actor,
            state_change=change,
        )
        encoded = encode_event(event)
        self._head = LineHead(event.session_id, event.step, event.attempt, encoded.digest)
        return encoded


def build_session(folder: Path, events: int, *, snapshot_every: int = 0) -> None:
    """A workspace with one session `s` of so many events, and a snapshot every so many steps."""
    with open_workspace(folder) as ws:
        builder = SessionBuilder(ws.log, "s")
        batch: list[EncodedEvent] = []
        for encoded in builder.events(events):
            batch.append(encoded)
            if snapshot_every and encoded.event.step % snapshot_every == snapshot_every - 1:
                state = builder.capture.base
                ws.snapshots.put_snapshot(
                    Snapshot(
                        *("s", encoded.event.step, encoded.digest),
                        *(digest_of(state), "captured", "1", state),
                    )
                )
            if len(batch) == BATCH:
                _append(ws.log, batch)
        _append(ws.log, batch)


def build_workspace(folder: Path, sessions: int, events: int) -> list[str]:
    """A workspace of so many sessions that were written in turns; their names."""
    names = [f"desk/{number:05}" for number in range(sessions)]
    each = events // sessions
    turn = max(1, each // 10)
    with open_workspace(folder) as ws:
        builders = [SessionBuilder(ws.log, name) for name in names]
        for done in range(0, each, turn):
            futures = []
            for builder in builders:
                batch = list(builder.events(min(turn, each - done)))
                futures.append(
                    ws.log.submit_events(
                        batch[0].event.session_id, batch, expected_step=batch[0].event.step - 1
                    )
                )
            for future in futures:
                future.result()
    return names


def directory_bytes(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _append(log: EventLog, batch: list[EncodedEvent]) -> None:
    if batch:
        first = batch[0].event
        log.append_events(first.session_id, list(batch), expected_step=first.step - 1)
        batch.clear()
