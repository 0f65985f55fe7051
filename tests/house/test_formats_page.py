"""`docs/formats.md` says what the code does: its tables and numbers are compared with it."""

import json
import random
import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from eventlog.canonical import ArrayValue, Registered, decode, encode
from eventlog.codec import EVENT_BYTES_MAX, TEXT_BYTES_MAX
from eventlog.config import WORKSPACE_FORMAT
from eventlog.errors import ValueNotEncodableError
from eventlog.event import BODY_OF_KIND, SESSION_ID_BYTES_MAX
from eventlog.json_form import dumps, loads
from eventlog.kafka.partitioning import murmur2, partition_of
from eventlog.schema import AvroSchema, load_schema
from eventlog.sqlite.schema import APPLICATION_ID, FORMAT, PAGE_BYTES, TABLES
from eventlog.values.extension_values import DEPTH_MAX, SIZE_BYTES_MAX
from eventlog.values.type_codecs import PACKAGE_CODECS
from snapshots.compression import RAW_BYTES_MAX, WINDOW_BYTES_MAX
from snapshots.random_state import capture_random
from snapshots.snapshot_store import CHAIN_MAX
from snapshots.training_state import capture_training_state

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
EVENT = load_schema("eventlog", "event-v1.avsc")
SNAPSHOT = load_schema("snapshots", "snapshot-v1.avsc")

VALUES: dict[str, object] = {
    "None": None,
    "True": True,
    "127": 127,
    "-33": -33,
    "2**64 - 1": 2**64 - 1,
    "2**64": 2**64,
    "1.0": 1.0,
    "-0.0": -0.0,
    'float("nan")': float("nan"),
    '"é"': "é",
    r'"\udc00"': "\udc00",
    r'b"\x00\xff"': b"\x00\xff",
    "[1, 2]": [1, 2],
    "(1, 2)": (1, 2),
    '{"b": 1, "a": 2}': {"b": 1, "a": 2},
    '{1: "x"}': {1: "x"},
    "{3, 1}": {3, 1},
    "frozenset()": frozenset(),
    "date(2024, 2, 29)": date(2024, 2, 29),
    "datetime(2024, 1, 2, 3, tzinfo=timezone.utc)": datetime(
        2024,
        1,
        2,
        3,
        tzinfo=timezone.utc,  # noqa: UP017 - as the page writes it
    ),
    "timedelta(hours=1)": timedelta(hours=1),
    'Decimal("1.50")': Decimal("1.50"),
    "1j": 1j,
    "UUID(int=1)": UUID(int=1),
    'Registered("desk.Order", 1, ["A1"])': Registered("desk.Order", 1, ["A1"]),
    'ArrayValue("array", "<i2", (2,), b"\\x01\\x00\\x02\\x00")': ArrayValue(
        "array", "<i2", (2,), b"\x01\x00\x02\x00"
    ),
}


def table_under(header: str) -> list[list[str]]:
    """The rows of the one table with this header line, as cells."""
    lines = PAGE.splitlines()
    places = [number for number, line in enumerate(lines) if line == header]
    assert len(places) == 1, f"{len(places)} tables under {header!r}"
    rows = []
    for line in lines[places[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def plain(cell: str) -> str:
    return cell.removeprefix("`").removesuffix("`")


def type_name(written: Any) -> str:
    """A type of a canonical schema as the page writes it."""
    if isinstance(written, list):
        branches = " or ".join(type_name(each) for each in written if each != "null")
        return branches + ("?" if "null" in written else "")
    if isinstance(written, str):
        return written.rpartition(".")[2]
    match written["type"]:
        case "fixed":
            return f"fixed {written['size']}"
        case "enum":
            return f"enum {', '.join(written['symbols'])}"
        case "array":
            return f"array of {type_name(written['items'])}"
        case "map":
            return f"map of {type_name(written['values'])}"
    return str(written["name"]).rpartition(".")[2]


def envelope_type_name(schema: AvroSchema, field: Any) -> str:
    """As `type_name`, with a type that is defined in place called by its name."""
    written = field["type"]
    if isinstance(written, dict) and written.get("name") == "steplog.Digest":
        return "Digest"
    if field["name"] == "body" and schema is EVENT:
        return "any of the bodies below"
    return type_name(written)


def test_the_examples_are_the_canonical_bytes() -> None:
    rows = {plain(text): plain(data) for text, data in table_under("| Value | Bytes |")}
    assert rows == {text: encode(value).hex() for text, value in VALUES.items()}
    for text, data in rows.items():
        assert encode(decode(bytes.fromhex(data), opaque=True)).hex() == data, text


def test_the_examples_have_this_json_form() -> None:
    rows = {plain(text): plain(form) for text, form in table_under("| Value | JSON form |")}
    assert rows == {text: dumps(value) for text, value in VALUES.items()}
    for text, form in rows.items():
        assert encode(loads(form)) == encode(VALUES[text]), text


def test_every_key_of_the_json_form_is_listed() -> None:
    section = PAGE[PAGE.index("## JSON form") : PAGE.index("## Imported sessions")]
    listed = set(re.findall(r"`(\$[a-z]+)`", section))
    assert len(listed) > 10
    for key in listed:
        with pytest.raises(ValueNotEncodableError, match="not the JSON form") as caught:
            loads(json.dumps({key: {}}))
        assert "unknown" not in caught.value.message, key
    assert set(re.findall(r'"(\$[a-z]+)"', section)) <= listed


def test_the_schemas_have_these_fingerprints() -> None:
    header = "| Schema | Fingerprint in the framing | SHA-256 of the canonical form |"
    assert [[plain(cell) for cell in row] for row in table_under(header)] == [
        [schema.name, schema.fingerprint.hex(), schema.sha256.hex()] for schema in (EVENT, SNAPSHOT)
    ]


def test_the_bodies_have_these_fields() -> None:
    kinds = {body.__name__: kind for kind, body in BODY_OF_KIND.items()}
    expected = []
    for body in EVENT.canonical["fields"][-1]["type"]:
        name = body["name"].rpartition(".")[2]
        fields = "; ".join(f"{each['name']}: {type_name(each['type'])}" for each in body["fields"])
        expected.append([f"`{kinds[name]}`", f"`{name}`", fields])
    assert table_under("| Kind | Body | Fields |") == expected


@pytest.mark.parametrize("schema", [EVENT, SNAPSHOT], ids=lambda schema: str(schema.name))
def test_the_records_have_these_fields(schema: AvroSchema) -> None:
    section = "## Events" if schema is EVENT else "## Snapshots"
    text = PAGE[PAGE.index(section) :]
    rows = text[text.index("| Field | Type | Meaning |") :].splitlines()[2:]
    listed = []
    for row in rows:
        if not row.startswith("|"):
            break
        name, kind, _meaning = (cell.strip() for cell in row.strip("|").split("|"))
        listed.append([plain(name), kind])
    fields = schema.canonical["fields"]
    assert listed == [[each["name"], envelope_type_name(schema, each)] for each in fields]


def test_the_tables_of_the_log_are_these() -> None:
    listed = {plain(row[0]) for row in table_under("| Table | Holds |")}
    assert listed == {name for name, text in TABLES.items() if text.startswith("CREATE TABLE")}
    assert f"pages of {PAGE_BYTES} bytes, the application id `{APPLICATION_ID:x}`" in PAGE
    assert f"Format {FORMAT} of its tables" in PAGE


def test_sessions_lie_in_these_partitions() -> None:
    rows = [
        [plain(c) for c in row]
        for row in table_under("| Session id | murmur2 | Of 64 partitions |")
    ]
    assert len(rows) == 4
    for session_id, hashed, partition in rows:
        assert f"{murmur2(session_id.encode('utf-8')):08x}" == hashed
        assert str(partition_of(session_id, 64)) == partition


def test_the_registered_names_of_the_package_are_listed() -> None:
    listed = set(re.findall(r"`(steplog\.[a-z_]+)`", PAGE[: PAGE.index("## Patches")]))
    assert {codec.name for codec in PACKAGE_CODECS} <= listed


@pytest.mark.parametrize(
    ("sentence", "figures"),
    [
        ("`format` (the version of this layout, now {})", [WORKSPACE_FORMAT]),
        (
            "Containers nest at most {} deep; a value has at most {} GiB",
            [DEPTH_MAX, SIZE_BYTES_MAX >> 30],
        ),
        ("1 to {} bytes of UTF-8, no control characters", [SESSION_ID_BYTES_MAX]),
        ("An event has at most {} KiB", [EVENT_BYTES_MAX >> 10]),
        ("All that is not\n  content may take {} KiB", [TEXT_BYTES_MAX >> 10]),
        ("at most {} deltas stand\nbetween a snapshot and a full one", [CHAIN_MAX]),
        ("Windows and states of more than {} GiB are refused", [WINDOW_BYTES_MAX >> 30]),
        ("bytes of the state, 1 to {} GiB", [RAW_BYTES_MAX >> 30]),
    ],
)
def test_the_bounds_are_these(sentence: str, figures: list[int]) -> None:
    assert sentence.format(*figures) in PAGE


class Counter:
    """A scheduler, or a data source, as any is: with a state of its own."""

    def state_dict(self) -> dict[str, int]:
        return {"at": 3}


def test_what_a_rank_brings_to_a_set_is_this() -> None:
    listed = {plain(row[0]) for row in table_under("| Of a rank | Meaning |")}
    data = capture_training_state(Counter(), Counter(), {"tokens": 1})
    assert listed == decode(data).keys()


def test_the_state_of_the_random_generators_is_this() -> None:
    listed = {plain(row[0]) for row in table_under("| Of the generators | Meaning |")}
    caught = capture_random({"own": random.Random(1)})
    # torch need not be loaded here, and no machine of ours has CUDA.
    assert caught.keys() <= listed
    assert listed - caught.keys() <= {"numpy", "torch", "cuda"}
