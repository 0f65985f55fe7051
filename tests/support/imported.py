"""Traces made by hand, and what was imported of them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eventlog.blob_store import BlobStore, MemoryBlobStore
from eventlog.codec import decode_event
from eventlog.content import BlobRef, Content, read_content
from eventlog.event import Event
from eventlog.importers.import_file import ImportOutcome, import_file
from eventlog.log import EventLog
from eventlog.memory_log import MemoryLog


class Imported:
    """A log and a blob store in memory, with what was imported into them."""

    def __init__(self) -> None:
        self.log: EventLog = MemoryLog()
        self.blobs: BlobStore = MemoryBlobStore()

    def take(self, path: Path, **options: Any) -> list[ImportOutcome]:
        """Import the file; every outcome."""
        return list(import_file(path, self.log, self.blobs, **options))

    def take_one(self, path: Path, **options: Any) -> ImportOutcome:
        """Import the file, which holds one record that can be imported."""
        (outcome,) = self.take(path, **options)
        assert outcome.problem is None, outcome.problem
        return outcome

    def events(self, session_id: str | None) -> list[Event]:
        """The session's events, decoded, in order."""
        assert session_id is not None
        return [decode_event(record.data) for record in self.log.read_session(session_id)]

    def digests(self) -> dict[str, list[str]]:
        """The event digests of every session, in hex."""
        return {
            info.session_id: [
                record.digest.hex() for record in self.log.read_session(info.session_id)
            ]
            for info in self.log.list_sessions()
        }

    def data(self, content: Content | None) -> bytes:
        """The content's exact bytes."""
        assert content is not None
        if isinstance(content.data, BlobRef):
            return self.blobs.get_blob(content.data)
        return content.data

    def value(self, content: Content | None) -> Any:
        """The content's value; JSON is parsed."""
        assert content is not None
        value = read_content(content.media_type, self.data(content))
        if content.media_type.startswith("application/json"):
            return json.loads(str(value))
        return value


def bodies(events: Sequence[Event], kind: str) -> list[Any]:
    """The bodies of the events of that kind."""
    return [event.body for event in events if event.kind == kind]


def notes(events: Sequence[Event], name: str) -> list[Any]:
    """The annotations of that name."""
    return [body for body in bodies(events, "annotated") if body.name == name]


def write_lines(path: Path, records: Sequence[Mapping[str, Any] | str]) -> Path:
    """A JSON-lines file of these records; a str is a line as it stands."""
    lines = [each if isinstance(each, str) else json.dumps(each) for each in records]
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def chat_record(task: int | str, *messages: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A tau-bench record."""
    return {"task_id": task, "reward": 1.0, "traj": list(messages), **more}


def said(role: str, text: str | None, **more: Any) -> dict[str, Any]:
    """A chat message."""
    return {"role": role, "content": text, **more}


def called(call_id: str, tool: str, arguments: str = "{}") -> dict[str, Any]:
    """An assistant's message that calls one tool."""
    function = {"name": tool, "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return said("assistant", None, tool_calls=calls)


def returned(call_id: str, text: str, **more: Any) -> dict[str, Any]:
    """A tool's message."""
    return said("tool", text, tool_call_id=call_id, **more)


def rollout_record(*output: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A NeMo Gym rollout whose user said `go`."""
    record: dict[str, Any] = {
        "responses_create_params": {"input": [{"role": "user", "content": "go"}]},
        "response": {"id": "resp_1", "created_at": 1700000000.5, "output": list(output)},
        "reward": 1.0,
    }
    return {**record, **more}
