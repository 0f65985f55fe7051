"""`StateCapture`: the state after each step, as the state change its event carries.

Holds the canonical bytes of the last known state and nothing of the caller's: a captured value is
encoded at once. Used by the recorder.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from eventlog.canonical import decode, digest_of, encode, find_shared
from eventlog.content import CANONICAL_VALUE, STATE_PATCH, Content
from eventlog.encoded_state import EncodedState
from eventlog.errors import ValueNotEncodableError
from eventlog.event import LineHead, StateChange, StateUnknown
from eventlog.state_patch import Operation, apply

# Looking for objects reached twice walks the live value in Python; beyond this size the walk
# would cost more than the capture itself, so it is made at the session's first state only.
SHARED_CHECK_BYTES_MAX: Final = 64 * 1024


class Recorded(NamedTuple):
    """What an observer is told: the last durable event, and the state's canonical bytes after it.

    `state_bytes` is None where the state is not known; `at_end` where the session was closed.
    """

    head: LineHead
    state_bytes: bytes | None
    at_end: bool


StateObserver = Callable[[Recorded], None]


class StateCapture:
    """The last known state of one session, and whether it is still known."""

    def __init__(self, base: bytes, *, known: bool = True) -> None:
        self._base = EncodedState(base)
        self.known = known
        self._before = (self._base, known)

    @property
    def base(self) -> bytes:
        """The canonical bytes of the last known state."""
        return self._base.data

    @classmethod
    def of_first(cls, value: object) -> tuple["StateCapture", Content]:
        """Capture a session's first state. Raises `ValueNotEncodableError` naming the path."""
        data = encode(value)
        _refuse_shared(value)
        return cls(data), Content(CANONICAL_VALUE, data)

    def change_to(self, value: object) -> StateChange | None:
        """The change from the last known state to `value`; None where nothing changed."""
        after = encode(value)
        if len(after) <= SHARED_CHECK_BYTES_MAX:
            _refuse_shared(value)
        return self._adopt(after)

    def change_by(self, patch: Sequence[Operation]) -> StateChange | None:
        """The change that `patch` makes to the last known state (environments that know it)."""
        own_patch = decode(encode(list(patch)), opaque=True)
        return self._adopt(encode(apply(own_patch, decode(self.base, opaque=True))))

    def forget(self, reason: str) -> StateUnknown:
        """From here on the state is not known, until it is captured again."""
        self._before = (self._base, self.known)
        self.known = False
        return StateUnknown(reason)

    def undo(self) -> None:
        """Take the last change back: its event was refused, so nothing may stand on it."""
        self._base, self.known = self._before

    def _adopt(self, after: bytes) -> StateChange | None:
        if self.known and after == self.base:
            return None
        self._before = (self._base, self.known)
        patch, self._base = self._base.patch_to(after)
        self.known = True
        return StateChange(Content(STATE_PATCH, patch), digest_of(after))


def _refuse_shared(value: object) -> None:
    """A value restored from its bytes has two objects where the live one had one reached twice."""
    shared = find_shared(value)
    if shared:
        first, second = shared[0]
        raise ValueNotEncodableError(
            f"the state reaches one mutable object twice, at {first} and at {second}",
            hint="copy it at one of the two places: a restored state would hold two objects there",
            path=second,
        )
