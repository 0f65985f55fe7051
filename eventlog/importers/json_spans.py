"""JSON values together with the exact text they were read from.

A trace's JSON is kept byte for byte: `1` stays `1` and `1.0` stays `1.0`, escapes, spaces and key
order stay as they are. So a part of a record is cut out of its text, never serialised anew. Texts
are taken as Python's `json` reads them (NaN and Infinity pass, a lone surrogate escape stays one);
what Python cannot read, or what nests deeper than `NESTING_MAX`, is `ImportFormatError`.
Pure; scanning never recurses.
"""

import json
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from eventlog.errors import ImportFormatError

# The depth that canonical values have too; a deeper record is an attack or an accident.
NESTING_MAX: Final = 200

# Possessive, so that no text can make them backtrack.
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_SCALAR: Final = re.compile(r"[^\s,\]}]+")
_SPACE: Final = re.compile(r"[ \t\r\n]*")


class Member(NamedTuple):
    """A member of an object: its name, the name's exact text (quotes included), its value."""

    name: str
    name_text: str
    node: "JsonNode"


class JsonNode:
    """One value inside a JSON text: `value` as Python reads it, `text` exactly as it stands there.

    `path` says where it is, as `$.response.output[3]`; errors name it.
    """

    __slots__ = ("_end", "_members", "_source", "_start", "path", "value")

    def __init__(self, source: str, start: int, end: int, value: object, path: str) -> None:
        self._source = source
        self._start = start
        self._end = end
        self._members: list[Member] | None = None
        self.value = value
        self.path = path

    @property
    def text(self) -> str:
        """The exact text of the value."""
        return self._source[self._start : self._end]

    @property
    def is_object(self) -> bool:
        """Whether the value is an object."""
        return isinstance(self.value, dict)

    @property
    def is_null(self) -> bool:
        """Whether the value is null."""
        return self.value is None

    def members(self) -> list[Member]:
        """The object's members as they stand, repeated names too. Raises `ImportFormatError`."""
        if self._members is None:
            if not isinstance(self.value, dict):
                raise self.wrong("an object")
            self._members = _members_of(self._source, self._start, self.value, self.path)
        return self._members

    def items(self) -> list["JsonNode"]:
        """The array's items. Raises `ImportFormatError` where it is no array."""
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        nodes = []
        at = _after_space(self._source, self._start + 1)
        for index, value in enumerate(self.value):
            end = _value_end(self._source, at)
            nodes.append(JsonNode(self._source, at, end, value, f"{self.path}[{index}]"))
            at = _after_space(self._source, _after_space(self._source, end) + 1)
        return nodes

    def find(self, name: str) -> "JsonNode | None":
        """The member of that name (the last one, as Python takes it); None where there is none."""
        found = None
        for member in self.members():
            if member.name == name:
                found = member.node
        return found

    def find_given(self, name: str) -> "JsonNode | None":
        """As `find`; None also where the member is null."""
        found = self.find(name)
        return None if found is None or found.is_null else found

    def need(self, name: str) -> "JsonNode":
        """The member of that name. Raises `ImportFormatError` where there is none."""
        found = self.find(name)
        if found is None:
            raise ImportFormatError(
                f"{self.path} has no {name!r}", hint="the record is not of this format"
            )
        return found

    def as_str(self) -> str:
        """The value, a str. Raises `ImportFormatError` where it is none."""
        if not isinstance(self.value, str):
            raise self.wrong("text")
        return self.value

    def find_str(self, name: str) -> str | None:
        """The text of that name; None where it is missing or null."""
        found = self.find_given(name)
        return None if found is None else found.as_str()

    def value_of(self, name: str) -> object:
        """The value of the member of that name; None where it is missing or null."""
        found = self.find(name)
        return None if found is None else found.value

    def find_items(self, name: str) -> list["JsonNode"]:
        """The items of that name; none where it is missing or null."""
        found = self.find_given(name)
        return [] if found is None else found.items()

    def rest(self, *taken: str, **instead: str) -> str:
        """The object's exact text without the members taken, and with other text for some.

        Of a repeated name only the member that `find` gives is taken: the others stay.
        """
        members = self.members()
        last = {member.name: index for index, member in enumerate(members)}
        kept = []
        for index, member in enumerate(members):
            stands = last[member.name] != index
            if stands or (member.name not in taken and member.name not in instead):
                kept.append(f"{member.name_text}:{member.node.text}")
            elif member.name in instead:
                kept.append(f"{member.name_text}:{instead[member.name]}")
        return "{" + ",".join(kept) + "}"

    def only(self, *names: str) -> str:
        """The exact text of an object of these members alone, those there are."""
        return self.rest(*(member.name for member in self.members() if member.name not in names))

    def wrong(self, expected: str) -> ImportFormatError:
        """The error that says what this value should be."""
        return ImportFormatError(
            f"{self.path} should be {expected}, and is {_json_type(self.value)}",
            hint="the record is not of this format",
        )


def array_text(items: Iterable[str]) -> str:
    """An array of these exact texts."""
    return "[" + ",".join(items) + "]"


def parse_json(data: bytes) -> JsonNode:
    """The value that `data` holds, as UTF-8 JSON.

    Raises `ImportFormatError` naming the byte (from 0, within `data`) where it goes wrong.
    """
    try:
        source = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ImportFormatError(
            f"byte {error.start} is not UTF-8 ({error.reason})",
            hint="the record is damaged, or in another encoding",
        ) from error
    try:
        value = json.loads(source)
    except json.JSONDecodeError as error:
        raise ImportFormatError(
            f"not JSON at byte {len(source[: error.pos].encode())}: {error.msg}",
            hint="the record is damaged or cut",
        ) from error
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        # Python refuses integers of more than 4,300 digits.
        raise ImportFormatError(
            f"a number cannot be read: {error}", hint="the record is damaged"
        ) from error
    if _nests_over(source, NESTING_MAX):
        raise _too_deep()
    start = _after_space(source, 0)
    return JsonNode(source, start, _value_end(source, start), value, "$")


def _members_of(source: str, start: int, values: dict[str, object], path: str) -> list[Member]:
    members: list[Member] = []
    at = _after_space(source, start + 1)
    while source[at] != "}":
        name_end = _value_end(source, at)
        name_text = source[at:name_end]
        name = json.loads(name_text)
        at = _after_space(source, _after_space(source, name_end) + 1)
        end = _value_end(source, at)
        node = JsonNode(source, at, end, values[name], f"{path}.{name}")
        members.append(Member(name, name_text, node))
        at = _after_space(source, end)
        if source[at] == ",":
            at = _after_space(source, at + 1)
    if len(members) > len(values):
        _give_repeated_their_own_values(members)
    return members


def _give_repeated_their_own_values(members: list[Member]) -> None:
    last = {member.name: index for index, member in enumerate(members)}
    for index, member in enumerate(members):
        if last[member.name] != index:
            member.node.value = json.loads(member.node.text)


def _value_end(source: str, start: int) -> int:
    """Where the value that begins at `start` ends. `source` is known to be JSON."""
    first = source[start]
    if first in "[{":
        depth = 0
        for token in _TOKEN.finditer(source, start):
            mark = source[token.start()]
            if mark in "[{":
                depth += 1
            elif mark in "]}":
                depth -= 1
                if depth == 0:
                    return token.end()
    match = (_STRING if first == '"' else _SCALAR).match(source, start)
    assert match is not None, "the text was read as JSON before"
    return match.end()


def _after_space(source: str, at: int) -> int:
    match = _SPACE.match(source, at)
    assert match is not None
    return match.end()


def _nests_over(source: str, depth_max: int) -> bool:
    if source.count("[") + source.count("{") <= depth_max:
        return False
    depth = 0
    for token in _TOKEN.finditer(source):
        mark = source[token.start()]
        if mark in "[{":
            depth += 1
            if depth > depth_max:
                return True
        elif mark in "]}":
            depth -= 1
    return False


def _too_deep() -> ImportFormatError:
    return ImportFormatError(
        f"the JSON nests deeper than {NESTING_MAX}", hint="no trace of a session is that deep"
    )


def _json_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean"}
    return names.get(type(value), "null" if value is None else "a number")
