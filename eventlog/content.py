"""`Content`: a free-form value inside an event, as a media type and its exact bytes.

Bytes stand inline, or in the blob store under their SHA-256 (`BlobRef`). Text that arrived as JSON
is kept byte for byte; values of ours are canonical bytes. Pure: fetching a blob is the caller's.
"""

import json
import re
import struct
from collections.abc import Iterable
from hashlib import sha256
from typing import Final, NamedTuple

from eventlog.canonical import decode, encode
from eventlog.errors import EventCorruptError, ValueNotEncodableError

APPLICATION_JSON: Final = "application/json"
TEXT_PLAIN: Final = "text/plain"
OCTET_STREAM: Final = "application/octet-stream"
CANONICAL_VALUE: Final = "application/vnd.steplog.value"
STATE_PATCH: Final = "application/vnd.steplog.patch"
INT32: Final = "application/vnd.steplog.int32"
FLOAT32: Final = "application/vnd.steplog.float32"

# Numbers of 4 bytes, little-endian, one after the other.
_NUMBER_FORMATS: Final = {INT32: "i", FLOAT32: "f"}
_NUMBER_BYTES: Final = 4

# What counts as JSON must not depend on the process: Python's own limits do (on the stack at hand,
# the version, and a setting for long numbers), and with them an imported event's digest.
JSON_DEPTH_MAX: Final = 200
JSON_NUMBER_DIGITS_MAX: Final = 4300
_DIGITS_ALWAYS_ALLOWED: Final = 640  # Python allows no lower setting
_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


class JsonText(str):
    """A tool's result that is JSON text: stored byte for byte as `application/json`."""

    __slots__ = ()


class BlobRef(NamedTuple):
    """Bytes kept in the blob store: their SHA-256 (32 bytes) and their size in bytes."""

    digest: bytes
    size: int


class Content(NamedTuple):
    """A media type and its exact bytes, inline or by `BlobRef`."""

    media_type: str
    data: bytes | BlobRef

    @property
    def digest(self) -> bytes:
        """The SHA-256 (32 bytes) of its bytes: the same whether they stand here or in a blob."""
        data = self.data
        return data.digest if isinstance(data, BlobRef) else sha256(data).digest()

    @classmethod
    def of_value(cls, value: object) -> "Content":
        """The canonical bytes of `value`. Raises `ValueNotEncodableError` naming the path."""
        return cls(CANONICAL_VALUE, encode(value))

    @classmethod
    def of_text(cls, text: str) -> "Content":
        """`text` as UTF-8; as a canonical value where it holds lone surrogates."""
        return _text_content(text, TEXT_PLAIN)

    @classmethod
    def of_json_text(cls, text: str) -> "Content":
        """`text` as it is: JSON where it parses as RFC 8259 text, else plain text."""
        return _text_content(text, APPLICATION_JSON if is_json_text(text) else TEXT_PLAIN)

    @classmethod
    def of_int32(cls, numbers: Iterable[int], *, path: str = "$") -> "Content":
        """Whole numbers, as token ids: a sequence, an `array`, a one-dimensional numpy array.

        Raises `ValueNotEncodableError` naming the place under `path` of what is none of 32 bits.
        """
        return cls(INT32, _number_bytes(numbers, INT32, path))

    @classmethod
    def of_float32(cls, numbers: Iterable[float], *, path: str = "$") -> "Content":
        """Floats, as logprobs, rounded to 32 bits; NaN and infinities too. Else as `of_int32`."""
        return cls(FLOAT32, _number_bytes(numbers, FLOAT32, path))


def is_json_text(text: str) -> bool:
    """Whether `text` is JSON as RFC 8259 has it: NaN and Infinity are not JSON.

    Nesting over 200 and whole numbers of over 4,300 digits are taken for text, in every process.
    """
    if _is_too_deep(text):
        return False
    parse_int = _check_int if len(text) > _DIGITS_ALWAYS_ALLOWED else None
    try:
        json.loads(text, parse_constant=_refuse_constant, parse_int=parse_int)
    except ValueError:
        return False
    return True


def argument_content(arguments: object) -> Content:
    """A call's arguments: a str is JSON text kept as it is, any other value canonical."""
    if isinstance(arguments, str):
        return Content.of_json_text(str(arguments))
    return Content.of_value(arguments)


def result_content(result: object) -> Content:
    """A tool's result: `JsonText` is JSON text, another str is text, any other value canonical."""
    if isinstance(result, JsonText):
        return Content.of_json_text(str(result))
    if isinstance(result, str):
        return Content.of_text(str(result))
    return Content.of_value(result)


def read_content(media_type: str, data: bytes, *, opaque: bool = False) -> object:
    """The value that `data` holds: str for text and JSON text, bytes for unknown media types.

    Numbers of 32 bits (token ids, logprobs, masks) come as a list of ints or floats.
    `opaque` keeps values of registered types closed. Raises `EventCorruptError` where the bytes
    are not of their media type.
    """
    plain = media_type.split(";", 1)[0]
    if plain in (CANONICAL_VALUE, STATE_PATCH):
        return decode(data, opaque=opaque)
    if plain in _NUMBER_FORMATS:
        return _read_numbers(plain, data)
    if plain not in (APPLICATION_JSON, TEXT_PLAIN):
        return data
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EventCorruptError(
            f"content of {media_type} is not UTF-8: {error}",
            hint="the stored bytes are damaged; run `steplog check`",
        ) from error
    return JsonText(text) if plain == APPLICATION_JSON else text


def escape_lone_surrogates(text: str) -> str:
    """`text` with each lone surrogate written as the six characters `\\udXXX`; else `text` itself.

    For the few names that are stored as plain strings (a call's tool and call id).
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


def _text_content(text: str, media_type: str) -> Content:
    try:
        return Content(media_type, text.encode("utf-8"))
    except UnicodeEncodeError:
        return Content(CANONICAL_VALUE, encode(text))


def _number_bytes(numbers: Iterable[float], media_type: str, path: str) -> bytes:
    # numpy's arrays and `array` give Python's numbers much faster in one go than one by one.
    as_list = getattr(numbers, "tolist", None)
    form = _NUMBER_FORMATS[media_type]
    values: list[object] = []
    try:
        values = list(numbers) if as_list is None else as_list()
        return struct.pack(f"<{len(values)}{form}", *values)
    except (struct.error, OverflowError, TypeError) as error:
        place = _first_misfit(values, form)
        raise ValueNotEncodableError(
            f"{path}{place} is no {media_type.rpartition('.')[2]} number: {error}",
            hint="give numbers of 32 bits, one-dimensional",
            path=path + place,
        ) from error


def _first_misfit(values: object, form: str) -> str:
    # Of no dimension `tolist` gives a number, which is no list.
    for index, value in enumerate(values if isinstance(values, list) else []):
        try:
            struct.pack(f"<{form}", value)
        except (struct.error, OverflowError):
            return f"[{index}]"
    return ""


def _read_numbers(media_type: str, data: bytes) -> list[object]:
    count, left = divmod(len(data), _NUMBER_BYTES)
    if left:
        raise EventCorruptError(
            f"content of {media_type} is {len(data)} bytes, no whole count of {_NUMBER_BYTES}",
            hint="the stored bytes are damaged; run `steplog check`",
        )
    return list(struct.unpack(f"<{count}{_NUMBER_FORMATS[media_type]}", data))


def _is_too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= JSON_DEPTH_MAX:
        return False
    depth = 0
    for match in _BRACKETS.finditer(text):
        if match[0] in ("[", "{"):
            depth += 1
            if depth > JSON_DEPTH_MAX:
                return True
        elif match[0] in ("]", "}"):
            depth -= 1
    return False


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _check_int(digits: str) -> object:
    if len(digits) > JSON_NUMBER_DIGITS_MAX:
        raise ValueError(f"a number of {len(digits)} digits")
    return None
