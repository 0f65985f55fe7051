"""Actors: every verb and every importer keeps to the vocabulary, and nothing else is written."""

import json
from pathlib import Path

import pytest

from eventlog.actors import ACTORS, actor_of_role, is_actor
from eventlog.blob_store import MemoryBlobStore
from eventlog.codec import decode_event, encode_event
from eventlog.content import Content
from eventlog.errors import EventCorruptError, ValueNotEncodableError
from eventlog.event import Event, LineHead, MessageAdded, SessionSeeded
from eventlog.importers.import_file import import_file
from eventlog.importers.session_draft import DraftBuilder
from eventlog.log import EventLog
from eventlog.memory_log import MemoryLog
from eventlog.recorder import SessionRecorder

ROLES = ["user", "system", "developer", "assistant", "reasoning", "model", "tool", "", "\u2603:x"]
HEAD = LineHead.before_seed("s")


def actors_of(log: EventLog, session_id: str) -> list[str]:
    return [decode_event(record.data).actor for record in log.read_session(session_id)]


def event_by(actor: str) -> Event:
    return Event.following(HEAD, SessionSeeded("e"), event_id=bytes(16), time=0, actor=actor)


@pytest.mark.parametrize("actor", [*ACTORS, "tool:lookup", "agent:a:b", "operator: x "])
def test_the_vocabulary_is_written_and_read(actor: str) -> None:
    assert is_actor(actor)
    assert decode_event(encode_event(event_by(actor)).data).actor == actor


@pytest.mark.parametrize("actor", ["", "user", "assistant", "Agent", "tool:", ":x", "agent x"])
def test_another_actor_is_neither_written_nor_read(actor: str) -> None:
    assert not is_actor(actor)
    with pytest.raises(ValueNotEncodableError, match=r"none of agent, tool, .*:id") as caught:
        encode_event(event_by(actor))
    assert caught.value.path == "$.actor"
    good = encode_event(event_by("system")).data
    length = bytes([2 * len(actor)])
    with pytest.raises(EventCorruptError, match="actor"):
        decode_event(good.replace(b"\x0csystem", length + actor.encode(), 1))


@pytest.mark.parametrize("role", ROLES)
def test_a_role_was_written_as_the_actor(role: str) -> None:
    with MemoryLog() as log:
        session = SessionRecorder.begin(log, MemoryBlobStore(), "s", SessionSeeded("test"))
        session.record_message(role, "hello")
        recorded = decode_event(list(log.read_session("s"))[-1].data)
        builder = DraftBuilder(SessionSeeded("test"))
        builder.add_message(role, Content.of_text("hello"))
        drafted = builder.finish().events[-1]
    assert isinstance(recorded.body, MessageAdded)
    assert recorded.body.role == role
    assert recorded.actor == drafted.actor == actor_of_role(role)
    assert is_actor(recorded.actor)


def test_every_verb_keeps_to_the_vocabulary() -> None:
    with MemoryLog() as log:
        session = SessionRecorder.begin(log, MemoryBlobStore(), "s", SessionSeeded("t"), state=1)
        session.record_tool_return(session.record_tool_call("t", {}), "x", state=2)
        session.record_message("assistant", "x")
        session.record_message("user", "x")
        session.record_verification(1.0, verifier="v")
        session.record_effect("clock", "now", 1)
        session.record_state("why", 3)
        session.annotate("note", "x")
        session.record_tool_call("t", {})
        session.interrupt_open_calls()
        session.close()
        actors = actors_of(log, "s")
    assert actors == [
        *("system", "agent", "tool", "agent", "system", "verifier"),
        *("system", "system", "operator", "agent", "tool", "system"),
    ]


def test_every_importer_keeps_to_the_vocabulary(tmp_path: Path) -> None:
    chat = {"messages": [{"role": role, "content": "x"} for role in ROLES if role != "tool"]}
    swe = {
        "trajectory": [{"action": "ls", "observation": "a", "response": "r", "thought": "t"}],
        "history": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],
    }
    steps: list[dict[str, object]] = [
        {"turn": 0, "server": server, "tool": "ls", "args": {}, "result": 1}
        for server in ("FS", "", "a:b", "\ud83d")
    ]
    bfcl = {"id": "b", "user_turns": [["go"]], "steps": steps}
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = [item, {"type": "reasoning", "summary": []}]
    gym = {"responses_create_params": {"input": "hi"}, "response": {"output": output}, "reward": 1}
    seen: set[str] = set()
    for number, record in enumerate((chat, swe, bfcl, gym)):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(json.dumps(record) + "\n")
        with MemoryLog() as log:
            (outcome,) = import_file(path, log, MemoryBlobStore())
            assert outcome.session_id is not None, outcome
            seen.update(actors_of(log, outcome.session_id))
    assert all(map(is_actor, seen))
    assert {"agent", "tool", "system", "verifier", "tool:FS", "tool:a:b"} <= seen
