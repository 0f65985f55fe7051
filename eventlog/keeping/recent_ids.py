"""`RecentIds`: which event ids stand among the last events of one line. Pure.

Asked at each append whether an id is there already, so it must be quick and small: 16 bytes for
each event. Ids minted as UUIDv7 sort by time: one above every known one is surely new.
"""

from collections.abc import Sequence
from typing import Final

_ID_BYTES: Final = 16
_VERSION_BYTE: Final = 6
_MINTED: Final = 0x70


class RecentIds:
    """The ids of the last `capacity` to 2 * `capacity` events of a line, in step order."""

    __slots__ = ("_capacity", "_first_step", "_ids", "_newest_minted", "head")

    def __init__(self, capacity: int, first_step: int) -> None:
        self._capacity = capacity
        self._first_step = first_step
        self._ids = bytearray()
        self._newest_minted = b""
        self.head: tuple[int, int] | None = None
        """(attempt, step) of the last event noted."""

    @property
    def next_step(self) -> int:
        """The step that the next event to be noted has."""
        return self._first_step + len(self._ids) // _ID_BYTES

    def note(self, event_ids: Sequence[bytes], attempt: int) -> None:
        """The line's next events, all of one attempt: in step order after the last one noted."""
        self._ids += event_ids[0] if len(event_ids) == 1 else b"".join(event_ids)
        self.head = (attempt, self.next_step - 1)
        newest = self._newest_minted
        for event_id in event_ids:
            if event_id > newest and event_id[_VERSION_BYTE] & 0xF0 == _MINTED:
                newest = event_id
        self._newest_minted = newest
        while len(self._ids) >= 2 * self._capacity * _ID_BYTES:
            del self._ids[: self._capacity * _ID_BYTES]
            self._first_step += self._capacity

    def find(self, event_ids: Sequence[bytes], end_step: int) -> int | None:
        """The lowest step of any of these ids among the last `capacity` steps before `end_step`."""
        newest = self._newest_minted
        known = [
            event_id
            for event_id in event_ids
            if event_id <= newest or event_id[_VERSION_BYTE] & 0xF0 != _MINTED
        ]
        if not known:
            return None
        oldest = max(0, end_step - self._capacity - self._first_step) * _ID_BYTES
        places = [
            place for event_id in known if (place := self._place_of(event_id, oldest)) is not None
        ]
        return None if not places else self._first_step + min(places) // _ID_BYTES

    def _place_of(self, event_id: bytes, start: int) -> int | None:
        place = self._ids.find(event_id, start)
        while place >= 0:
            if place % _ID_BYTES == 0:
                return place
            place = self._ids.find(event_id, place + 1)
        return None
