"""Readable golden files: lines of `expression -> what it gives`, comments and blank lines."""

import struct
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from eventlog.canonical import ArrayValue, Registered

GOLDEN = Path(__file__).resolve().parents[1] / "golden"

# What the expressions in golden files may name.
NAMES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(date, datetime, time, timedelta, timezone, ZoneInfo, Decimal, UUID, ArrayValue),
        *(Registered, Counter, OrderedDict, defaultdict, deque, PurePosixPath, PureWindowsPath),
    )
} | {"struct": struct}


def golden_lines(*parts: str) -> list[tuple[str, str]]:
    """The left and right sides of a golden file's lines."""
    text = GOLDEN.joinpath(*parts).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(left, right) for left, _, right in (line.rpartition(" -> ") for line in lines)]


def golden_value(expression: str) -> Any:
    """The value of an expression in a golden file of ours."""
    return eval(expression, dict(NAMES))
