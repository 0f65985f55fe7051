"""`StateCapture`: the state after each step, as the state change its event carries.

Holds the canonical bytes of the last known state and nothing of the caller's: a captured value is
encoded at once. A capture is first only proposed; it counts from the moment the log has taken the
event that carries it. Used by the recorder.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from eventlog.canonical import decode, digest_of, encode, find_shared, may_share_rngs
from eventlog.content import CANONICAL_VALUE, STATE_PATCH, Content
from eventlog.encoded_state import EncodedState
from eventlog.errors import EventCorruptError, StateError, ValueNotEncodableError
from eventlog.event import LineHead, StateChange, StateUnknown
from eventlog.state_patch import apply

# Looking for objects reached twice walks the live value in Python. On a large state of many small
# objects that takes as long as the capture itself (2.2 MB, 300,000 values: 27 ms of 28), so beyond
# this size only the values nearest to the root are walked at later captures (1.5 ms); the first
# state is walked whole. Random generators are looked for everywhere and at any size: a shared one
# draws other numbers after a restore.
SHARED_CHECK_BYTES_MAX: Final = 64 * 1024
SHARED_CHECK_VALUES_MAX: Final = 16_384


class Recorded(NamedTuple):
    """What an observer is told: the last durable event, and the state's canonical bytes after it.

    `state_bytes` is None where the state is not known; `at_end` where the session was closed, or
    is about to be released.
    """

    head: LineHead
    state_bytes: bytes | None
    at_end: bool


StateObserver = Callable[[Recorded], None]


class Captured(NamedTuple):
    """A capture not yet adopted: what the event says, and the state after it if that is known."""

    change: StateChange | StateUnknown | None
    after: EncodedState | None


class StateCapture:
    """The last known state of one session, and whether it is still known."""

    def __init__(self, base: bytes, *, known: bool = True) -> None:
        self._base = EncodedState(base)
        self._ever_known = True
        self.known = known

    @property
    def base(self) -> bytes:
        """The canonical bytes of the last known state; of None where none ever was."""
        return self._base.data

    @classmethod
    def of_nothing(cls) -> "StateCapture":
        """No state was ever known: the next change is the whole state, against nothing."""
        capture = cls(encode(None), known=False)
        capture._ever_known = False
        return capture

    @classmethod
    def of_first(cls, value: object) -> tuple["StateCapture", Content]:
        """Capture a session's first state. Raises `ValueNotEncodableError` naming the path."""
        data = encode(value)
        _refuse_shared(value)
        return cls(data), Content(CANONICAL_VALUE, data)

    def change_to(self, value: object) -> Captured:
        """The change from the last known state to `value`; none where nothing changed.

        Raises `ValueNotEncodableError` naming the path.
        """
        after = encode(value)
        if len(after) <= SHARED_CHECK_BYTES_MAX:
            _refuse_shared(value)
        else:
            _refuse_shared(value, values_max=SHARED_CHECK_VALUES_MAX)
            if may_share_rngs(after):
                _refuse_shared(value, rngs_only=True)
        if self.known and after == self.base:
            return Captured(None, self._base)
        patch, following = self._base.patch_to(after)
        if not self._ever_known:
            patch = encode([["set", [], decode(after, opaque=True)]])
        return Captured(StateChange(Content(STATE_PATCH, patch), digest_of(after)), following)

    def change_by(self, patch: object) -> Captured:
        """The change that `patch`, a list of operations (`state_patch`), makes to the last state.

        The state after it is computed here, and its digest from that. Raises `StateError` where the
        last state is not known or the patch does not fit it, `ValueNotEncodableError`.
        """
        if not self.known:
            raise StateError(
                "a patch was given, but the state it would change is not known",
                hint="give the whole state once with state=; from then on patches will do",
            )
        stored = encode(patch)
        try:
            state = apply(decode(stored, opaque=True), decode(self.base, opaque=True))
        except EventCorruptError as error:
            raise StateError(
                f"the patch does not fit the last known state: {error.message}",
                hint="make it with steplog's operations, against the state after the last event",
            ) from error
        after = EncodedState(encode(state))
        if after.data == self.base:
            return Captured(None, self._base)
        return Captured(StateChange(Content(STATE_PATCH, stored), digest_of(after.data)), after)

    def holds(self, value: object) -> bool:
        """Whether `value` is the last known state. Raises `ValueNotEncodableError`."""
        return encode(value) == self.base

    def forget(self, reason: str) -> Captured:
        """From here on the state is not known, until it is captured again."""
        return Captured(StateUnknown(reason), None)

    def adopt(self, captured: Captured) -> None:
        """The log has taken the event that carries this capture."""
        if captured.after is None:
            self.known = False
        else:
            self._base, self.known, self._ever_known = captured.after, True, True


def _refuse_shared(
    value: object, *, rngs_only: bool = False, values_max: int | None = None
) -> None:
    """A value restored from its bytes has two objects where the live one had one reached twice."""
    shared = find_shared(value, rngs_only=rngs_only, values_max=values_max)
    if shared:
        first, second = shared[0]
        raise ValueNotEncodableError(
            f"the state reaches one mutable object twice, at {first} and at {second}",
            hint="copy it at one of the two places: a restored state would hold two objects there",
            path=second,
        )
