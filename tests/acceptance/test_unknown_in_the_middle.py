"""D7, its whole kind: what this build cannot read stands in the middle of a session with states.

An event of another kind, in another schema, or whose body is broken; a patch and a state that do
not decode; a value of an unregistered type. Each stops with its place named, or is shown closed;
no command and no call gives a state as if nothing had been there.
"""

import json
import struct
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eventlog.avro.event_form import EVENT_SCHEMA
from eventlog.avro.record_writer import text_bytes
from eventlog.canonical import digest, encode
from eventlog.codec import EncodedEvent
from eventlog.content import STATE_PATCH, Content
from eventlog.errors import (
    CodecMissingError,
    EventCorruptError,
    SteplogError,
    UnknownKindError,
    UnknownSchemaError,
)
from eventlog.event import Annotated, LineHead, StateChange
from eventlog.schema import HEADER_BYTES
from eventlog.values.opaque_values import Registered
from replay.workspace import open_workspace
from tests.support.command import Command
from tests.support.events import EventChain
from tests.support.recorded import append_all

STRANGE_STEP = 5
OTHER_SCHEMA = bytes(range(8))
FINGERPRINT = f"{struct.unpack('<Q', EVENT_SCHEMA.header[2:])[0]:016x}"


def changed_to(state: object) -> StateChange:
    return StateChange(Content(STATE_PATCH, encode([["set", [], state]])), digest(state))


def ten_states(
    folder: Path,
    strange: Callable[[EncodedEvent], bytes] = lambda good: good.data,
    change: StateChange | None = None,
) -> None:
    """Ten events, each with a state; the bytes or the change of the sixth are another's."""
    with open_workspace(folder) as ws:
        chain = EventChain("s")
        chain.seed(writer=ws.log.writer_id, initial_state=Content.of_value({"n": 0}))
        for number in range(1, 10):
            own = change if change is not None and number == STRANGE_STEP else None
            good = chain.append(
                Annotated("note", Content.of_value(number)),
                state_change=own or changed_to({"n": number}),
            )
            if number == STRANGE_STEP:
                data = strange(good)
                chain.events[number] = EncodedEvent(good.event, data, sha256(data).digest())
                chain.head = LineHead("s", number, 1, chain.events[number].digest)
        append_all(ws.log, chain.events)


class Strange(NamedTuple):
    """A case: the sixth event's bytes, the error, and what else its message must name."""

    bytes_of: Callable[[EncodedEvent], bytes]
    error: type[SteplogError]
    named: tuple[str, ...]


CASES = {
    "kind": Strange(
        lambda good: good.data.replace(text_bytes("annotated"), text_bytes("annotatex")),
        UnknownKindError,
        ("annotatex", FINGERPRINT),
    ),
    "schema": Strange(
        lambda good: b"\xc3\x01" + OTHER_SCHEMA + good.data[HEADER_BYTES:],
        UnknownSchemaError,
        ("annotated", OTHER_SCHEMA[::-1].hex()),
    ),
    "body": Strange(lambda good: good.data[:-3], EventCorruptError, ()),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("snapshots", [False, True])
def test_a_strange_event_stops_every_way_past_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: Strange, snapshots: bool
) -> None:
    folder = tmp_path / "ws"
    ten_states(folder, case.bytes_of)
    with open_workspace(folder) as ws:
        if snapshots:
            ws.take_snapshot("s", 3)
        assert ws.replay("s", 3).state == {"n": 3}
        ways: list[Callable[[], object]] = [
            lambda: list(ws.events("s")),
            lambda: list(ws.calls("s")),
            lambda: ws.replay("s", 9, reducer="transcript"),
        ]
        if case.named:  # found out by the first bytes: so also by what reads only these
            ways += [lambda step=step: ws.replay("s", step) for step in (5, 6, 9)]  # type: ignore[misc]
            ways += [
                lambda: ws.fork("s", 5, name="b"),
                lambda: ws.resume("s"),
                lambda: ws.diff(("s", 0), ("s", 9)),
            ]
        for way in ways:
            with pytest.raises(case.error) as caught:
                way()
            assert (caught.value.session_id, caught.value.step) == ("s", STRANGE_STEP)
            for name in (*case.named, f"offset {STRANGE_STEP}"):
                assert name in caught.value.message
        assert ws.session("s").step_count == 10, "nothing was claimed or forked"
        (report,) = ws.check("s")
        assert (report.verdict, report.first_bad) == (
            "stopped" if case.named else "damaged",
            STRANGE_STEP,
        )
    steplog = Command(folder, capsys)
    for arguments in (
        ["check", "s"],
        ["show", "s"],
        *([["replay", "s"], ["replay", "s", "--step", 7]] if case.named else []),
    ):
        ran = steplog("--json", *arguments)
        assert ran.code == 4, (arguments, ran)
        assert '"n":9' not in ran.out
        assert all(name in ran.err for name in case.named), ran.err
    assert steplog("--json", "replay", "s", "--step", 3).row["state"] == {"n": 3}


@pytest.mark.parametrize(
    "patch",
    [
        b"\xc1",
        b"",
        encode(["not an operation"]),
        encode([["grow", [], 1]]),
        encode({}),
        b"\xd4\x63A",
    ],
)
def test_a_patch_that_cannot_be_read_is_no_state(tmp_path: Path, patch: bytes) -> None:
    change = StateChange(Content(STATE_PATCH, patch), digest({"n": 5}))
    ten_states(tmp_path / "ws", change=change)
    with open_workspace(tmp_path / "ws") as ws:
        assert ws.replay("s", 4).state == {"n": 4}
        for step in (5, 6, 9):
            with pytest.raises(EventCorruptError) as caught:
                ws.replay("s", step)
            assert (caught.value.session_id, caught.value.step) == ("s", STRANGE_STEP)
        (report,) = ws.check("s")
        assert (report.verdict, report.first_bad) == ("damaged", STRANGE_STEP)


def test_a_state_of_an_unregistered_type_is_shown_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "ws"
    ten_states(folder, change=changed_to({"n": 5, "purse": Registered("bank.coin", 3, [1, 2])}))
    with open_workspace(folder) as ws:
        replayed = ws.replay("s", STRANGE_STEP)
        with pytest.raises(CodecMissingError) as caught:
            _ = replayed.state
        assert (caught.value.name, caught.value.path) == ("bank.coin", "$.purse")
        opaque: Any = replayed.opaque_state
        assert opaque["purse"] == Registered("bank.coin", 3, [1, 2])
        assert ws.replay("s", 6).state == {"n": 6}, "what comes after it is whole"
        assert [one.verdict for one in ws.check()] == ["ok"]
        ws.fork("s", STRANGE_STEP, name="b")
        with pytest.raises(CodecMissingError):
            _ = ws.resume("b").state
    ran = Command(folder, capsys)("--json", "replay", "s", "--step", STRANGE_STEP)
    assert ran.code == 0
    state = json.loads(ran.out)["state"]
    assert state == {"n": 5, "purse": {"$type": ["bank.coin", 3, [1, 2]]}}
