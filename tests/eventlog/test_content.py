"""`Content`: text kept byte for byte, JSON told from text, values canonical, surrogates survive."""

import array
import base64
import json
import math
import struct
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.canonical import decode, encode
from eventlog.content import (
    APPLICATION_JSON,
    CANONICAL_VALUE,
    FLOAT32,
    INT32,
    OCTET_STREAM,
    STATE_PATCH,
    TEXT_PLAIN,
    Content,
    JsonText,
    argument_content,
    escape_lone_surrogates,
    is_json_text,
    read_content,
    result_content,
)
from eventlog.errors import EventCorruptError, ValueNotEncodableError
from tests.support.data import data_path

SURROGATES = ["a\udc00b", "\ud83d", "\ude00", "\ud83d\ude00x\udfff"]


def read_back(content: Content) -> object:
    assert isinstance(content.data, bytes)
    return read_content(content.media_type, content.data)


@given(st.text(st.characters(codec=None)))
def test_any_text_comes_back(text: str) -> None:
    """Case D8: lone surrogates, and pairs split over two texts, too."""
    for content in (Content.of_text(text), Content.of_json_text(text), result_content(text)):
        assert read_back(content) == text


@pytest.mark.parametrize("text", SURROGATES)
def test_text_that_utf8_cannot_hold_is_a_canonical_value(text: str) -> None:
    content = Content.of_text(text)
    assert content.media_type == CANONICAL_VALUE
    assert read_back(content) == text


@pytest.mark.parametrize(
    "text",
    ['{"a": 1}', "[]", " 1 ", '"x"', "null", '{"a":1,"a":2}', "1e400", '"\\ud800"', "-0", "[1.0]"],
)
def test_json_text_is_kept_byte_for_byte(text: str) -> None:
    content = argument_content(text)
    assert content == Content(APPLICATION_JSON, text.encode())
    read = read_back(content)
    assert isinstance(read, JsonText)
    assert read == text


@pytest.mark.parametrize(
    "text",
    ["NaN", "Infinity", "-Infinity", '{"a": NaN}', "[-Infinity]", "", "{", "{'a': 1}", "01", "hi"],
)
def test_what_is_no_json_is_text(text: str) -> None:
    assert not is_json_text(text)
    assert argument_content(text) == Content(TEXT_PLAIN, text.encode())


def nested(depth: int) -> str:
    return '[{"a[[[\\"[":' * (depth // 2) + "1" + "}]" * (depth // 2)


def in_a_deep_stack(frames: int, text: str) -> bool:
    return is_json_text(text) if frames == 0 else in_a_deep_stack(frames - 1, text)


def test_how_deep_json_may_be_does_not_depend_on_the_process() -> None:
    assert is_json_text(nested(200))
    assert not is_json_text(nested(202))
    assert in_a_deep_stack(300, nested(200))
    assert not is_json_text("[" * 200_000 + "]" * 200_000)
    assert is_json_text("[" + ",".join(["[]"] * 500) + "]")


def test_how_long_a_number_may_be_does_not_depend_on_the_process() -> None:
    limit = sys.get_int_max_str_digits()
    try:
        for setting in (640, 4300, 0):
            sys.set_int_max_str_digits(setting)
            assert is_json_text("1" * 4300)
            assert not is_json_text("[" + "1" * 4301 + "]")
            assert is_json_text("0." + "1" * 5000)
    finally:
        sys.set_int_max_str_digits(limit)


def test_the_json_test_suite_decides_alike() -> None:
    """Every "y" text is JSON, no "n" text is. What is not UTF-8 never becomes a text of ours."""
    cases = json.loads(data_path("vectors", "json", "jsontestsuite.json").read_text())
    assert len(cases) == 169
    decided = 0
    for case in cases:
        try:
            text = base64.b64decode(case["b64"]).decode("utf-8")
        except UnicodeDecodeError:
            continue
        content = argument_content(text)
        assert read_back(content) == text
        if case["expect"] in ("accept", "reject"):
            decided += 1
            wanted = APPLICATION_JSON if case["expect"] == "accept" else TEXT_PLAIN
            assert content.media_type == wanted, case["name"]
    assert decided > 100


def test_results_and_arguments_by_type() -> None:
    assert result_content('{"a":1}') == Content(TEXT_PLAIN, b'{"a":1}')
    assert result_content(JsonText('{"a":1}')) == Content(APPLICATION_JSON, b'{"a":1}')
    assert result_content(JsonText("not json")) == Content(TEXT_PLAIN, b"not json")
    for value in (None, 3, b"raw", [1], {"a": (1, 2)}, {1: 2}):
        assert result_content(value) == Content(CANONICAL_VALUE, encode(value))
        assert argument_content(value) == Content.of_value(value)
        assert read_back(Content.of_value(value)) == value


def test_values_without_canonical_form_are_refused() -> None:
    with pytest.raises(ValueNotEncodableError):
        result_content(object())


@given(st.text())
def test_media_type_parameters_do_not_change_how_it_reads(text: str) -> None:
    assert read_content(f"{TEXT_PLAIN};redacted=keys-1", text.encode()) == text


def test_reading_by_media_type() -> None:
    assert read_content(OCTET_STREAM, b"\xff") == b"\xff"
    assert read_content("application/x-unheard-of", b"\xff") == b"\xff"
    patch = encode([["set", [], 1]])
    assert read_content(STATE_PATCH, patch) == decode(patch)


@pytest.mark.parametrize(
    ("media_type", "data"),
    [
        (TEXT_PLAIN, b"\xff"),
        (APPLICATION_JSON, b"\xed\xa0\x80"),
        (CANONICAL_VALUE, b"\xc1"),
        (CANONICAL_VALUE, b""),
        (STATE_PATCH, b"\x90\x90"),
    ],
)
def test_bytes_that_are_not_of_their_media_type(media_type: str, data: bytes) -> None:
    with pytest.raises(EventCorruptError):
        read_content(media_type, data)


@pytest.mark.parametrize("text", ["", "a", "é", "\\udc00", "\U0001f600"])
def test_sound_text_is_not_escaped(text: str) -> None:
    assert escape_lone_surrogates(text) is text


@pytest.mark.parametrize("text", SURROGATES)
def test_lone_surrogates_are_escaped(text: str) -> None:
    escaped = escape_lone_surrogates(text)
    escaped.encode("utf-8")
    assert "\\ud" in escaped


def test_how_they_are_escaped() -> None:
    assert escape_lone_surrogates("a\udc00b") == "a\\udc00b"
    assert escape_lone_surrogates("\ud83d") == "\\ud83d"


TOKENS = [0, 1, -1, 151_643, 2**31 - 1, -(2**31)]


@pytest.mark.parametrize(
    "tokens",
    [
        TOKENS,
        tuple(TOKENS),
        (token for token in TOKENS),
        array.array("i", TOKENS),
        np.array(TOKENS, dtype=np.int64),
        np.array(TOKENS, dtype=">i4"),
    ],
    ids=lambda tokens: type(tokens).__name__,
)
def test_token_ids_come_back(tokens: list[int]) -> None:
    content = Content.of_int32(tokens)
    assert content.media_type == INT32
    assert content.data == struct.pack("<6i", *TOKENS)
    back = read_back(content)
    assert isinstance(back, list)
    assert back == TOKENS
    assert {type(token) for token in back} == {int}


@pytest.mark.parametrize("make", [list, tuple, np.float32, np.float64])
def test_logprobs_come_back_as_32_bits(make: Callable[[list[float]], list[float]]) -> None:
    logprobs = [-0.1, -0.0, -math.inf, math.nan, -1e-45, 3.4e38]
    content = Content.of_float32(make(logprobs))
    assert content.media_type == FLOAT32
    assert content.data == struct.pack("<6f", *logprobs)
    back = read_back(content)
    assert isinstance(back, list)
    assert struct.pack("<6f", *back) == content.data


def test_masks_of_bools_and_no_numbers_at_all() -> None:
    assert read_back(Content.of_int32([True, False])) == [1, 0]
    assert read_back(Content.of_int32(np.array([True, False]))) == [1, 0]
    assert read_back(Content.of_int32([])) == read_back(Content.of_float32(())) == []


@pytest.mark.parametrize(
    ("make", "numbers", "place"),
    [
        (Content.of_int32, [1, 2.0], "$.t[1]"),
        (Content.of_int32, [1, 2, 2**31], "$.t[2]"),
        (Content.of_int32, ["1"], "$.t[0]"),
        (Content.of_int32, [[1, 2]], "$.t[0]"),
        (Content.of_int32, np.array([[1, 2]]), "$.t[0]"),
        (Content.of_int32, np.array(7), "$.t"),
        (Content.of_int32, 7, "$.t"),
        (Content.of_float32, [0.5, 1e39], "$.t[1]"),
        (Content.of_float32, [None], "$.t[0]"),
    ],
)
def test_what_is_no_number_of_32_bits_is_refused(make: object, numbers: object, place: str) -> None:
    with pytest.raises(ValueNotEncodableError) as caught:
        make(numbers, path="$.t")  # type: ignore[operator]
    assert caught.value.path == place


def test_numbers_cut_short_are_damage() -> None:
    for media_type in (INT32, FLOAT32):
        with pytest.raises(EventCorruptError, match="7 bytes"):
            read_content(media_type, bytes(7))
