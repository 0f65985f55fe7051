"""Values as a person reads them: on one line, or whole and indented."""

from collections.abc import Mapping
from typing import Final

from eventlog.content import Content
from replay.cli.output import shortened
from replay.cli.value_text import value_text
from replay.views import FetchContent, content_bytes, content_value, is_shown

BRIEF_CHARS: Final = 48


def brief_json(form: object, chars_max: int = BRIEF_CHARS) -> str:
    """The beginning of a value in the JSON form, on one line; a str without its quotes."""
    return shortened(form if isinstance(form, str) else value_text(form), chars_max)


def brief_content(content: Content, fetch: FetchContent, chars_max: int = BRIEF_CHARS) -> str:
    """The beginning of what a content holds; a content over the limit is told by its size."""
    if not is_shown(content):
        return f"<{content_bytes(content)} bytes>"
    return brief_json(content_value(content, fetch), chars_max)


def whole_json(form: object) -> str:
    """A value in the JSON form as indented text."""
    return value_text(form, indented=True)


def whole_content(row: Mapping[str, object]) -> str:
    """What a content's row holds, whole: text as it is, all else as indented JSON."""
    if "value" not in row:
        return f"<blob {row['blob']}>"
    value = row["value"]
    return value if isinstance(value, str) else whole_json(value)
