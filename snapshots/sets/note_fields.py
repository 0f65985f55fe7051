"""`NoteFields`: the value of a note that we write into sessions, read strictly.

The log proves that a note is as it was written, not that we wrote it: anybody may annotate.
"""

import re

from eventlog.content import read_content
from eventlog.errors import CheckpointError
from eventlog.event import Annotated, Event
from eventlog.whole_number import whole_number
from snapshots.checkpoints.manifest import CheckpointRef, check_id


class NoteFields:
    """The fields of one note's value. Raises `CheckpointError` for one that must not be so."""

    def __init__(self, event: Event) -> None:
        assert isinstance(event.body, Annotated), "notes are annotations"
        self._event, self._name = event, event.body.name
        content = event.body.value
        data = content.data
        value = read_content(content.media_type, data) if isinstance(data, bytes) else None
        if not isinstance(value, dict):
            raise self.refusal("its value has no fields")
        self._value = value

    def text(self, name: str) -> str:
        """A text."""
        value = self._value.get(name)
        if not isinstance(value, str):
            raise self.refusal(f"{name!r} is no text")
        return value

    def number(self, name: str) -> int:
        """A whole number from 0 on."""
        number = whole_number(self._value.get(name))
        if number is None or number < 0:
            raise self.refusal(f"{name!r} is no number from 0 on")
        return number

    def ref(self, id_name: str = "checkpoint") -> CheckpointRef:
        """The checkpoint that it names."""
        digest = self.text("manifest")
        if re.fullmatch("[0-9a-f]{64}", digest) is None:
            raise self.refusal("'manifest' is no SHA-256 in hex")
        try:
            id_ = check_id(self.text(id_name), "an id")
        except ValueError as error:
            raise self.refusal(str(error)) from None
        return CheckpointRef(self.number("training_step"), id_, digest)

    def refusal(self, what: str) -> CheckpointError:
        """The error that says what is wrong with the note."""
        return CheckpointError(
            f"the note {self._name!r} is not one of ours: {what}",
            hint="give notes of your own another name",
            session_id=self._event.session_id,
            step=self._event.step,
        )
