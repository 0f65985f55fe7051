"""Exact texts of the parts of a JSON text: against Python's own reader, and published vectors."""

import base64
import json
import random
import re

import pytest

from eventlog.errors import ImportFormatError
from eventlog.importers.json_spans import NESTING_MAX, JsonNode, array_text, parse_json
from tests.support.data import data_path


def each_node(node: JsonNode) -> list[JsonNode]:
    nodes = [node]
    if isinstance(node.value, dict):
        for member in node.members():
            nodes += each_node(member.node)
    elif isinstance(node.value, list):
        for item in node.items():
            nodes += each_node(item)
    return nodes


def assert_spans_are_exact(text: str) -> None:
    whole = parse_json(text.encode())
    for node in each_node(whole):
        assert repr(json.loads(node.text)) == repr(node.value)
        assert node.text.strip(" \t\r\n") == node.text
        if isinstance(node.value, list):
            items = [item.text for item in node.items()]
            assert repr(json.loads(array_text(items))) == repr(node.value)
        if isinstance(node.value, dict):
            assert repr(json.loads(node.rest())) == repr(node.value)


def test_the_published_json_vectors() -> None:
    vectors = json.loads(data_path("vectors", "json", "jsontestsuite.json").read_text())
    read = 0
    for vector in vectors:
        data = base64.b64decode(vector["b64"])
        try:
            json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError):
            with pytest.raises(ImportFormatError):
                parse_json(data)
            assert vector["expect"] != "accept", vector["name"]
            continue
        assert_spans_are_exact(data.decode("utf-8"))
        read += 1
    assert read > 50


def random_json(chance: random.Random, depth: int) -> str:
    """A JSON text with all that a text may vary: spaces, escapes, number forms, repeated names."""
    space = "".join(chance.choice(" \t\r\n") for _ in range(chance.randrange(3)))
    kind = chance.randrange(9 if depth else 6)
    if kind < 2:
        scalars = "1 1.0 -0 -0.0 1e5 1E+05 0.9999999999999998 123456789012345678901234567890"
        return space + chance.choice((scalars + " true false null NaN -Infinity").split()) + space
    if kind < 6:
        parts = [
            "a",
            "\\\\",
            '\\"',
            "[",
            "]",
            "{",
            "}",
            ",",
            ":",
            "é",
            "\\u00e9",
            "\\ud83d",
            "\U0001f600",
        ]
        return space + '"' + "".join(chance.choice(parts) for _ in range(chance.randrange(6))) + '"'
    count = chance.randrange(4)
    items = [random_json(chance, depth - 1) for _ in range(count)]
    if kind == 6:
        return f"{space}[{','.join(items) or space}]{space}"
    names = [space + chance.choice(['"a"', '"b"', '"\\u0061"', '""']) + space for _ in items]
    pairs = ",".join(f"{name}:{item}" for name, item in zip(names, items, strict=True))
    return f"{space}{{{pairs or space}}}{space}"


def test_random_texts_are_cut_exactly() -> None:
    chance = random.Random(8259)
    for _ in range(3000):
        assert_spans_are_exact(random_json(chance, 5))


def test_numbers_escapes_and_spaces_stay_as_they_came() -> None:
    text = '{"a" : [1, 1.0,1e0 , 0.9999999999999998], "\\u0062":"\\ud83d", "c":{ "d" : NaN }}'
    node = parse_json(text.encode())
    assert node.need("a").text == "[1, 1.0,1e0 , 0.9999999999999998]"
    assert [item.text for item in node.need("a").items()][:3] == ["1", "1.0", "1e0"]
    assert node.need("b").value == "\ud83d"
    assert node.need("b").text == '"\\ud83d"'
    assert node.rest("a") == '{"\\u0062":"\\ud83d","c":{ "d" : NaN }}'
    assert node.rest("b", c="0") == '{"a":[1, 1.0,1e0 , 0.9999999999999998],"c":0}'
    assert node.only("c", "x") == '{"c":{ "d" : NaN }}'
    assert node.need("a").items()[3].path == "$.a[3]"
    assert node.need("c").need("d").path == "$.c.d"


def test_of_a_repeated_name_the_last_is_found_and_only_the_last_is_taken() -> None:
    node = parse_json(b'{"a":1,"b":2,"a":3,"\\u0061":4}')
    assert node.need("a").value == 4
    assert [member.node.value for member in node.members()] == [1, 2, 3, 4]
    assert node.rest("a", "b") == '{"a":1,"a":3}'


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON at byte 0"),
        (b'{"a":1', "not JSON at byte 6"),
        ('{"é":1'.encode(), "not JSON at byte 7"),
        (b'{"a":1}{"b":2}', "not JSON at byte 7"),
        (b'{"a":\x00}', "not JSON at byte 5"),
        (b'"\xe2\x82', "byte 1 is not UTF-8"),
        (b'"\xed\xa0\x80"', "byte 1 is not UTF-8"),
        (b"\xff\xfe{\x00}\x00", "byte 0 is not UTF-8"),
        (b"9" * 5000, "a number cannot be read"),
        (b"[" * (NESTING_MAX + 1) + b"]" * (NESTING_MAX + 1), "deeper than 200"),
        (b"[" * 100_000, "deeper than 200"),
        (b'{"a":' * 100_000, "deeper than 200"),
        (b"[" * 50_000 + b"]" * 50_000, "deeper than 200"),
    ],
)
def test_what_is_no_json_is_refused_with_its_byte(data: bytes, says: str) -> None:
    with pytest.raises(ImportFormatError, match=re.escape(says)):
        parse_json(data)


def test_nesting_at_the_limit_and_brackets_in_texts_pass() -> None:
    assert parse_json(b"[" * NESTING_MAX + b"]" * NESTING_MAX).text.startswith("[[")
    assert parse_json(b'["' + b"[" * 1000 + b'"]').items()[0].value == "[" * 1000


def test_many_escapes_and_quotes_do_not_make_it_slow() -> None:
    # A pattern that backtracks takes hours for these.
    text = json.dumps({"a": '\\"' * 200_000, "b": [0] * 50_000})
    node = parse_json(text.encode())
    assert node.need("b").items()[-1].text == "0"
    with pytest.raises(ImportFormatError):
        parse_json(b'"' + b'\\"' * 200_000)


@pytest.mark.parametrize(
    ("text", "act", "says"),
    [
        ("[]", lambda node: node.members(), "$ should be an object, and is a list"),
        ("{}", lambda node: node.items(), "$ should be a list, and is an object"),
        ("true", lambda node: node.as_str(), "$ should be text, and is a boolean"),
        ("null", lambda node: node.as_str(), "$ should be text, and is null"),
        ('{"a":1}', lambda node: node.find_str("a"), "$.a should be text, and is a number"),
        ('{"a":1}', lambda node: node.need("b"), "$ has no 'b'"),
        ('{"a":"x"}', lambda node: node.find_items("a"), "$.a should be a list, and is text"),
    ],
)
def test_a_value_of_another_type_is_named_with_its_path(text: str, act: object, says: str) -> None:
    assert callable(act)
    with pytest.raises(ImportFormatError, match=re.escape(says)):
        act(parse_json(text.encode()))


def test_missing_and_null_are_told_apart_where_asked() -> None:
    node = parse_json(b'{"a":null}')
    found = node.find("a")
    assert found is not None
    assert found.is_null
    assert node.find_given("a") is None
    assert node.find_str("a") is None
    assert node.find_items("b") == []
    assert node.value_of("a") is None
