"""Full names, canonical form and fingerprints against Avro's own vectors, and against fastavro."""

import json
from importlib import resources

import pytest
from fastavro.schema import to_parsing_canonical_form

from eventlog.avro.schema_form import (
    canonical_form,
    crc64_avro,
    fingerprint_of,
    sha256_of,
    with_full_names,
)
from tests.support.data import data_path


def test_avros_canonical_forms_and_fingerprints() -> None:
    text = data_path("vectors", "avro", "canonical_form_and_fingerprint.json").read_text()
    vectors = json.loads(text)
    assert len(vectors) == 17
    for vector in vectors:
        canonical = canonical_form(json.loads(vector["INPUT"]))
        assert canonical == vector["canonical"]
        assert int.from_bytes(fingerprint_of(canonical), "little", signed=True) == int(
            vector["fingerprint"]
        )
        assert canonical_form(json.loads(canonical)) == canonical


@pytest.mark.parametrize("name", ["interop.avsc", "test_schema.avsc", "weather.avsc"])
def test_fastavro_agrees_on_avros_schemas(name: str) -> None:
    definition = json.loads(data_path("vectors", "avro", name).read_text())
    assert canonical_form(definition) == to_parsing_canonical_form(definition)


def test_fastavro_agrees_on_ours() -> None:
    shipped = resources.files("eventlog").joinpath("schemas", "event-v1.avsc").read_text("utf-8")
    definition = json.loads(shipped)
    assert canonical_form(definition) == to_parsing_canonical_form(definition)


def test_crc_of_nothing_is_its_seed() -> None:
    assert crc64_avro(b"") == 0xC15D213AA4D7A795


def test_the_sha256_fingerprint() -> None:
    """From the Avro specification's vectors for "int"."""
    assert sha256_of('"int"').hex() == (
        "3f2b87a9fe7cc9b13835598c3981cd45e3e355309e5090aa0933d7becb6fba45"
    )


def test_names_take_the_namespace_around_them() -> None:
    definition = {
        "type": "record",
        "name": "a.b.Outer",
        "aliases": ["Old", "c.Older"],
        "doc": "gone",
        "fields": [
            {"name": "own", "type": {"type": "fixed", "name": "Inner", "size": 4}, "doc": "gone"},
            {"name": "again", "type": ["null", "Inner"], "default": None},
            {"name": "bare", "type": {"type": "enum", "name": "E", "namespace": "", "symbols": []}},
            {"name": "list", "type": {"type": "array", "items": {"type": "Inner"}}},
            {"name": "map", "type": {"type": "map", "values": {"type": "long", "doc": "gone"}}},
        ],
    }
    assert with_full_names(definition) == {
        "name": "a.b.Outer",
        "type": "record",
        "aliases": ["a.b.Old", "c.Older"],
        "fields": [
            {"name": "own", "type": {"name": "a.b.Inner", "type": "fixed", "size": 4}},
            {"name": "again", "type": ["null", "a.b.Inner"], "default": None},
            {"name": "bare", "type": {"name": "E", "type": "enum", "symbols": []}},
            {"name": "list", "type": {"type": "array", "items": "a.b.Inner"}},
            {"name": "map", "type": {"type": "map", "values": "long"}},
        ],
    }


@pytest.mark.parametrize("definition", [None, 3, {}, {"type": 3}, ["int", {}], {"type": "array"}])
def test_what_is_no_schema_is_refused(definition: object) -> None:
    with pytest.raises(ValueError, match="not an Avro schema"):
        canonical_form(definition)
