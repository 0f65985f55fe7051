"""Values as people read them: numbers, small arrays, and what stays closed."""

import json
import math
import random
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from eventlog.json_form import to_json_form
from eventlog.values.opaque_values import ArrayValue, Registered
from replay.cli.value_text import ARRAY_ITEMS_MAX, bytes_text, value_text


@dataclass
class Point:
    """A value that is told by its text."""

    x: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (math.nan, "nan"),
        (np.float64(0.25), "0.25"),
        (np.int8(-3), "-3"),
        (np.bool_(True), "true"),
        (np.array([[True], [False]]), "<bool array [2, 1]: [[true], [false]]>"),
        (np.array(7), "<int64 array: 7>"),
        (np.zeros((2, 0)), "<float64 array [2, 0]: [[], []]>"),
        (np.array(["é", "b"]), '<U1 array [2]: ["é", "b"]>'),
        (ArrayValue("tensor", "float32", (2,), bytes(8)), "<float32 tensor [2]: [0.0, 0.0]>"),
        (ArrayValue("tensor", "int64", (), bytes(8)), "<int64 tensor: 0>"),
        (random.Random(1), "<random.Random, 2.5 KB>"),
        (Counter("aab"), '<counter {"a": 2, "b": 1}>'),
        (Registered("desk.order", 1, {"n": np.int64(2)}), '<desk.order {"n": 2}>'),
        (Registered("desk.log", 1, "x" * 2_000), "<desk.log, 2.0 KB>"),
        (
            {"a": (1, 2.0), 3: b"x"},
            '{"$dict": [["a", {"$tuple": [1, 2.0]}], [3, {"$bytes": "eA=="}]]}',
        ),
    ],
)
def test_texts(value: object, text: str) -> None:
    assert value_text(to_json_form(value)) == text


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64"])
def test_elements_that_are_not_spelled_out_are_told_by_digest(dtype: str) -> None:
    size = {"float16": 2, "bfloat16": 2, "complex64": 8}[dtype]
    told = value_text(to_json_form(ArrayValue("tensor", dtype, (1,), bytes(size))))
    assert told.startswith(f"<{dtype} tensor [1]")
    assert ("sha256" in told) == (dtype != "float16")


def test_a_large_array_is_told_by_dtype_shape_and_digest() -> None:
    small, large = np.zeros(ARRAY_ITEMS_MAX), np.zeros(ARRAY_ITEMS_MAX + 1)
    assert "0.0, 0.0" in value_text(to_json_form(small))
    told = value_text(to_json_form(large))
    assert told.startswith("<float64 array [65], 520 bytes, sha256 ")
    large[3] = 1
    assert value_text(to_json_form(large)) != told


@pytest.mark.parametrize("indented", [False, True])
def test_plain_json_is_written_as_json_is(indented: bool) -> None:
    form: Any = {"a": [1, {"b": [None, True, "é\n"]}], "c": {}, "d": [], "e": {"x": 0.5}}
    wanted = json.dumps(form, ensure_ascii=False, indent=2 if indented else None)
    assert value_text(form, indented=indented) == wanted


def test_a_value_as_deep_as_any_is_told() -> None:
    value: Any = OrderedDict(a=1)
    for _ in range(100):
        value = {1: (value,)} if isinstance(value, list) else [value]
    assert value_text(to_json_form(value))


def test_sizes() -> None:
    assert [bytes_text(size) for size in (12, 2_500, 3_400_000)] == ["12 bytes", "2.5 KB", "3.4 MB"]
