"""Just enough YAML to read `docker/compose.yaml` without a package for it.

Maps by indentation, lists and maps in one line, quoted and plain scalars (all taken as text),
anchors on maps, and `<<` merges. Anything else is refused, so that the file stays as simple.
"""

import re
from typing import Any

_PAIR = re.compile(r"(?P<key>[\w.<-]+):(?: +(?P<rest>.*))?$")
_ITEM = re.compile(r'"(?P<quoted>[^"]*)"|(?P<plain>[^,\[\]{}"]+)')


def read_compose(text: str) -> dict[str, Any]:
    """The file as nested dicts, lists and texts, with its anchors and merges resolved."""
    lines = []
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            assert "\t" not in line, line
            lines.append((len(line) - len(line.lstrip()), line.strip()))
    found, rest = _read_map(lines, 0, {})
    assert not rest, rest
    return found


Lines = list[tuple[int, str]]


def _read_map(lines: Lines, indent: int, anchors: dict[str, Any]) -> tuple[dict[str, Any], Lines]:
    merged: dict[str, Any] = {}
    own: dict[str, Any] = {}
    while lines and lines[0][0] == indent:
        pair = _PAIR.match(lines[0][1])
        assert pair, lines[0]
        key, rest = pair["key"], pair["rest"] or ""
        assert key not in own, f"{key} twice"
        lines = lines[1:]
        if key == "<<":
            for name in re.findall(r"\*([\w-]+)", rest):
                # As YAML has it, the first of several that has a key gives its value.
                merged = {**anchors[name], **merged}
        elif rest and not rest.startswith("&"):
            own[key] = _read_value(rest)
        elif lines and lines[0][0] > indent:
            own[key], lines = _read_map(lines, lines[0][0], anchors)
        else:
            own[key] = None
        if rest.startswith("&"):
            anchors[rest[1:]] = own[key]
    assert not lines or lines[0][0] < indent, lines[0]
    return {**merged, **own}, lines


def _read_value(text: str) -> Any:
    if text[0] == "[":
        assert text[-1] == "]", text
        return _items(text[1:-1])
    if text[0] == "{" and text[-1] == "}":
        pairs = (each.split(":", 1) for each in text[1:-1].split(", "))
        return {key.strip(): _items(value)[0] for key, value in pairs}
    if text[0] == '"':
        return _items(text)[0]
    assert " #" not in text, text
    assert text[0] not in "'|>!%@`*-", text
    return text


def _items(text: str) -> list[str]:
    return [
        found["quoted"] if found["plain"] is None else found["plain"].strip()
        for found in _ITEM.finditer(text)
        if (found["plain"] or "x").strip()
    ]
