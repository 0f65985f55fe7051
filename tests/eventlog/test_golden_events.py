"""Frozen events of version 1, one file per kind: fields, bytes and digest must agree for ever.

The files are written only by a run under STEPLOG_WRITE_GOLDEN=1, and never again after 0.1.0.
"""

import io
import json
import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import fastavro
import pytest

from eventlog.codec import decode_event, decode_prefix, encode_event
from eventlog.content import BlobRef, Content
from eventlog.event import Body, Event
from tests.support.events import KINDS
from tests.support.golden_bodies import BARE, FULL, WHOLE_ENVELOPE

GOLDEN = Path(__file__).parents[1] / "golden"
HEX_LINE_CHARS = 96


def fields_of(value: object, path: str) -> Iterator[str]:
    """One line for each plain value, under its path."""
    if isinstance(value, Content | BlobRef | Event) or hasattr(value, "_fields"):
        record: Any = value
        yield from (
            line
            for name, field in zip(record._fields, record, strict=True)
            for line in fields_of(field, f"{path}.{name}")
        )
    elif isinstance(value, Mapping):
        yield f"{path} = map of {len(value)}"
        for key, item in value.items():
            yield from fields_of(item, f"{path}[{json.dumps(key)}]")
    elif isinstance(value, tuple):
        yield f"{path} = list of {len(value)}"
        for index, item in enumerate(value):
            yield from fields_of(item, f"{path}[{index}]")
    elif isinstance(value, bytes):
        yield f"{path} = bytes {value.hex()}"
    else:
        yield f"{path} = {json.dumps(value)}"


def written(title: str, event: Event) -> str:
    """An event as its golden file has it."""
    encoded = encode_event(event)
    hexed = encoded.data.hex()
    lines = [f"# {title}: {type(event.body).__name__}"]
    lines += [line.removeprefix(".") for line in fields_of(encoded.event, "")]
    lines += [
        f"hex {hexed[at : at + HEX_LINE_CHARS]}" for at in range(0, len(hexed), HEX_LINE_CHARS)
    ]
    lines.append(f"digest {encoded.digest.hex()}")
    return "\n".join(lines) + "\n"


def event_of(body: Body, kind: str, *, whole: bool) -> Event:
    return (
        WHOLE_ENVELOPE._replace(kind=kind, body=body)
        if whole
        else Event(bytes(16), "s", 0, 1, kind, bytes(32), None, 0, "system", None, body)
    )


def parts_of(text: str) -> Iterator[tuple[str, bytes, bytes]]:
    """Each event of a file: its text, bytes and digest."""
    for part in text.split("\n\n"):
        lines = part.splitlines()
        data = bytes.fromhex("".join(line[4:] for line in lines if line.startswith("hex ")))
        (digest,) = (line[7:] for line in lines if line.startswith("digest "))
        yield part.rstrip("\n") + "\n", data, bytes.fromhex(digest)


@pytest.mark.parametrize("kind", KINDS)
def test_golden_events(kind: str) -> None:
    file = GOLDEN / "events" / f"{kind}.txt"
    if os.environ.get("STEPLOG_WRITE_GOLDEN") == "1":
        texts = [
            written("every field set", event_of(FULL[kind], kind, whole=True)),
            written("only what is required", event_of(BARE[kind], kind, whole=False)),
        ]
        file.write_text("\n".join(texts), encoding="utf-8")
    parts = list(parts_of(file.read_text(encoding="utf-8")))
    assert len(parts) == 2
    for text, data, digest in parts:
        event = decode_event(data)
        assert event.kind == kind
        assert decode_prefix(data) == event[:7]
        assert sha256(data).digest() == digest
        assert encode_event(event).data == data
        title = text.partition(":")[0].removeprefix("# ")
        assert written(title, event) == text


@pytest.mark.parametrize("kind", KINDS)
def test_public_libraries_read_them_with_the_published_schema(kind: str) -> None:
    published = (GOLDEN / "schemas" / "event-v1.txt").read_text(encoding="utf-8")
    lines = dict(line.split(": ", 1) for line in published.splitlines())
    schema = fastavro.parse_schema(json.loads(lines["canonical form"]))
    for _, data, _ in parts_of((GOLDEN / "events" / f"{kind}.txt").read_text(encoding="utf-8")):
        assert data[:10].hex() == lines["single-object header"]
        source = io.BytesIO(data[10:])
        fields = fastavro.schemaless_reader(source, schema, None)
        assert source.read() == b""
        event = decode_event(data)
        assert (fields["kind"], fields["session_id"]) == (kind, event.session_id)
        assert set(fields["body"]) == set(event.body._fields)


def test_no_golden_file_is_left_over() -> None:
    assert {file.stem for file in (GOLDEN / "events").iterdir()} == set(KINDS)


def test_every_field_is_set_in_the_full_bodies() -> None:
    for kind, body in FULL.items():
        assert None not in tuple(body), kind
