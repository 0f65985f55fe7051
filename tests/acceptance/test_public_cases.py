"""Faults that others met, end to end through the workspace: D1, D7, D8, D9, D10, D11 of the cases.

The parts have tests of their own for every variant; here a user's whole way is gone.
"""

import hashlib
import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eventlog.avro.event_form import EVENT_SCHEMA
from eventlog.avro.record_writer import text_bytes
from eventlog.codec import EncodedEvent, decode_event, encode_event
from eventlog.content import Content, JsonText
from eventlog.errors import CodecMissingError, SteplogError, UnknownKindError, UnknownSchemaError
from eventlog.event import Annotated, Event, LineHead, ToolCalled, ToolReturned
from eventlog.json_form import dumps, from_json_form
from eventlog.schema import HEADER_BYTES
from replay.workspace import Workspace, open_workspace
from tests.support.data import ROOT
from tests.support.events import EventChain
from tests.support.imported import chat_record, said
from tests.support.recorded import append_all


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "ws"


# D1: after a crash the last line is cut, and the next append is glued to the stump.


def test_d1_a_cut_file_brings_what_is_whole_and_later_the_rest(
    folder: Path, tmp_path: Path
) -> None:
    lines = [
        json.dumps(chat_record(task, said("user", "pay €")), ensure_ascii=False).encode() + b"\n"
        for task in range(4)
    ]
    path = tmp_path / "traces.jsonl"
    whole, last = b"".join(lines[:3]), lines[3]
    for cut in (1, last.index("€".encode()) + 1, last.index("€".encode()) + 2, len(last) - 2):
        path.write_bytes(whole + last[:cut])
        with open_workspace(folder) as ws:
            *_, stump = ws.import_file(path)
            assert (stump.byte_offset, stump.byte_count) == (len(whole), cut)
            assert [info.task_id for info in ws.sessions()] == ["0", "1", "2"]
    path.write_bytes(whole + last[:-1])  # whole, and only without its newline
    with open_workspace(folder) as ws:
        assert [outcome.events > 0 for outcome in ws.import_file(path)] == [False] * 3 + [True]
        assert [info.task_id for info in ws.sessions()] == ["0", "1", "2", "3"]
        for info in ws.sessions():
            state: Any = ws.replay(info.session_id).state
            assert state["messages"][0]["content"] == "pay €"
        assert {report.verdict for report in ws.check()} == {"ok"}


# D7: a value that cannot be decoded comes back as None, and the run goes on.


def ten_events(ws: Workspace, kind: str, schema: bytes) -> None:
    """Ten events, of which the sixth is of a kind, or in a schema, that this build lacks."""
    chain = EventChain("s")
    chain.seed(writer=ws.log.writer_id, state_coverage="none")
    for number in range(5):
        chain.append(Annotated("note", Content.of_value(number)))
    good = chain.events[5]
    data = schema + good.data[HEADER_BYTES:].replace(text_bytes("annotated"), text_bytes(kind))
    strange = EncodedEvent(good.event, data, hashlib.sha256(data).digest())
    chain.events[5] = strange
    chain.head = LineHead("s", 5, 1, strange.digest)
    for number in range(4):
        chain.append(Annotated("note", Content.of_value(number)))
    append_all(ws.log, chain.events)


@pytest.mark.parametrize(
    ("kind", "schema", "error", "named"),
    [
        ("annotatex", EVENT_SCHEMA.header, UnknownKindError, "annotatex"),
        ("annotated", b"\xc3\x01" + bytes(range(8)), UnknownSchemaError, "0706050403020100"),
    ],
)
def test_d7_what_this_build_does_not_know_stops_and_is_named(
    folder: Path, kind: str, schema: bytes, error: type[SteplogError], named: str
) -> None:
    with open_workspace(folder) as ws:
        ten_events(ws, kind, schema)
        for step in (5, 7, 9):
            with pytest.raises(error) as caught:
                ws.replay("s", step)
            assert (caught.value.session_id, caught.value.step) == ("s", 5)
            assert named in caught.value.message
            assert "offset 5" in caught.value.message
        for ask in (ws.events, ws.calls):
            with pytest.raises(error):
                list(ask("s"))
        before: Any = ws.replay("s", 3).state
        assert before == {"messages": [], "calls": [], "verified": [], "closed": None}
        (report,) = ws.check("s")
        assert (report.verdict, report.first_bad) == ("stopped", 5)


RECORDS_A_COIN = """
import sys, steplog
from eventlog.canonical import register_type
class Coin:
    def __init__(self, value):
        self.value = value
register_type(Coin, name="test.coin", version=1, to_value=lambda coin: coin.value, from_value=Coin)
with steplog.open_workspace(sys.argv[1]) as ws:
    with ws.record("s", environment="bank", state={"coin": Coin(5)}) as session:
        session.record_state("spent", {"coin": Coin(4), "left": [Coin(1)]})
"""


def test_d7_a_state_of_an_unregistered_type_is_never_hollow(folder: Path) -> None:
    run(RECORDS_A_COIN, folder)
    with open_workspace(folder) as ws:
        replayed = ws.replay("s", 1)
        with pytest.raises(CodecMissingError) as caught:
            _ = replayed.state
        assert caught.value.name == "test.coin"
        assert caught.value.path == "$.coin"
        opaque: Any = replayed.opaque_state
        assert (opaque["coin"].name, opaque["coin"].value) == ("test.coin", 4)
        assert ws.diff(("s", 0), ("s", 1)).changes[0].path == ("coin",)
        assert [report.verdict for report in ws.check()] == ["ok"]
        session = ws.resume("s", reopen=True)
        with pytest.raises(CodecMissingError):
            _ = session.state


def run(script: str, *arguments: object, hash_seed: str = "0") -> str:
    """Run a Python script in a process of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# D8: lone surrogates in model or tool text crash the writer.


def test_d8_lone_surrogates_come_back_and_export_as_json(folder: Path) -> None:
    texts = ["a\udc00b", "\ud83d", "\ude00", "\ud83d\ude00 whole"]
    state = {"texts": list(texts), "\udc00 key": 1}
    with open_workspace(folder) as ws:
        session = ws.record("s", environment="desk", state=lambda: state)
        for text in texts:
            with session.call("say", {"text": text}, call_id=text) as call:
                state["texts"].append(text)  # type: ignore[attr-defined]
                call.result = text
            session.record_message("assistant", text)
    with open_workspace(folder) as ws:
        replayed = ws.replay("s").state
        assert replayed == state
        text_form = dumps(replayed)
        assert from_json_form(json.loads(text_form.encode("utf-8"))) == state
        transcript: Any = ws.replay("s", reducer="transcript").state
        assert [call["result"] for call in transcript["calls"]] == texts
        assert [message["content"] for message in transcript["messages"]] == texts


# D9: one NaN metric makes the whole record unwritable.

REWARDS = [math.nan, math.inf, -math.inf, -0.0, 5e-324]
PRINTS_DIGESTS = """
import sys, steplog
with steplog.open_workspace(sys.argv[1]) as ws:
    for step in range(ws.session("s").step_count):
        print(ws.replay("s", step, use_snapshots=False).state_digest.hex())
"""


def bits(number: float) -> bytes:
    return struct.pack(">d", number)


def test_d9_rewards_that_are_no_json_numbers(folder: Path) -> None:
    with open_workspace(folder) as ws:
        with ws.record("s", environment="desk", state={"rewards": []}) as session:
            for reward in REWARDS:
                session.record_verification(
                    reward,
                    verifier="v",
                    components={"part": reward},
                    state={"rewards": [reward], "by": {reward: 1} if reward == reward else {}},
                )
        for number, reward in enumerate(REWARDS, 1):
            body: Any = list(ws.events("s"))[number].body
            assert bits(body.reward) == bits(body.components["part"]) == bits(reward)
            state: Any = ws.replay("s", number).state
            assert bits(state["rewards"][0]) == bits(reward)
            text = dumps(state)
            strict = json.loads(text, parse_constant=lambda name: pytest.fail(name))
            again: Any = from_json_form(strict)
            assert bits(again["rewards"][0]) == bits(reward)
        digests = [ws.replay("s", step).state_digest.hex() for step in range(7)]
    for hash_seed in ("1", "4711"):
        assert run(PRINTS_DIGESTS, folder, hash_seed=hash_seed).split() == digests


# D10: reading old data fails after an enum gained a symbol.


def test_d10_an_event_of_a_later_schema_is_refused_and_those_before_it_are_read(
    folder: Path,
) -> None:
    """The gate's verdicts on grown enums are in test_schema_gate; here is a log that holds one."""
    with open_workspace(folder) as ws:
        session = ws.record("s", environment="desk")
        call = session.record_tool_call("t", {})
        session.record_tool_return(call, "x")
        later = Event.following(
            LineHead("s", session.step, 1, session.event_digest),
            ToolReturned(call, "ok"),
            event_id=bytes(16),
            time=1,
            actor="tool",
        )
        old = encode_event(later).data
        data = b"\xc3\x01" + bytes(8) + old[HEADER_BYTES:]
        append_all(ws.log, [EncodedEvent(later, data, hashlib.sha256(data).digest())])
    with open_workspace(folder) as ws:
        with pytest.raises(UnknownSchemaError) as caught:
            ws.replay("s", 3)
        assert "newer" in caught.value.hint or "version" in caught.value.hint
        assert ws.replay("s", 1).step == 1


# D11: call ids are not unique, and de-duplication by id deleted results.


def test_d11_one_id_for_every_call_and_results_in_any_order(folder: Path) -> None:
    with open_workspace(folder) as ws:
        with ws.record("s", environment="desk") as session:
            first = session.record_tool_call("get", '{"id": 1}', call_id="call_1")
            second = session.record_tool_call("get", '{"id": 2}', call_id="call_1")
            session.record_tool_return(second, JsonText('{"id": 2}'))
            session.record_tool_return(first, JsonText('{"id": 1}'))
            paid = session.record_tool_call("pay", "{}", idempotency_key="order-1")
            session.record_tool_return(paid, "paid")
            for _ in range(3):  # the client never got the answer, and asks again
                assert session.record_tool_call("pay", "{}", idempotency_key="order-1") == paid
                assert session.record_tool_return(paid, "paid") == paid + 1
        rows = sorted(ws.calls("s"), key=lambda row: row.call_step)
        assert [(row.call_step, row.status) for row in rows] == [
            (first, "ok"),
            (second, "ok"),
            (paid, "ok"),
        ]
        for row in rows[:2]:
            assert row.result is not None
            assert ws.read_content(row.arguments) == ws.read_content(row.result)
        kinds = [event.kind for event in ws.events("s")]
        assert (kinds.count("tool_called"), kinds.count("tool_returned")) == (3, 3)


def test_d11_a_retry_after_a_crash_is_still_the_same_call(folder: Path) -> None:
    with open_workspace(folder) as ws:
        session = ws.record("s", environment="desk")
        paid = session.record_tool_call("pay", "{}", idempotency_key="order-1", effects="external")
    with open_workspace(folder) as ws:
        session = ws.resume("s")
        assert session.record_tool_call("pay", "{}", idempotency_key="order-1") == paid
        returned = session.record_tool_return(paid, "paid")
    with open_workspace(folder) as ws:
        session = ws.resume("s")
        assert session.record_tool_call("pay", "{}", idempotency_key="order-1") == paid
        assert session.record_tool_return(paid, "paid") == returned
        calls = [event for event in ws.events("s") if isinstance(event.body, ToolCalled)]
        assert len(calls) == 1
        assert decode_event(next(ws.log.read_session("s", paid)).data).step == paid
