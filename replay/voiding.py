"""`void_sessions`: sessions taken out of what is trained on, as after a bad policy version.

A session is voided by an annotation `session_voided` that stands in its line; nothing is erased.
One that has ended takes it in one append. An open one belongs to whoever writes it: it is left,
unless its writer is to be fenced. Voiding again does nothing, so what was interrupted is run again.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from eventlog.content import result_content
from eventlog.errors import (
    ConfigError,
    FencedError,
    IntegrityError,
    StepConflictError,
)
from eventlog.event import Annotated, SessionResumed
from eventlog.keeping.kept_records import decode_record
from eventlog.log import EventLog, SessionFilter, SessionInfo
from eventlog.training_facts import SESSION_VOIDED
from replay.ended_sessions import (
    TRIES_MAX,
    Addition,
    Place,
    append_to_ended,
    closing_batch,
    read_ended,
)
from snapshots.sets.members import is_own

REASON: Final = "voiding"
"""The reason that the claim gives: an open session that ends with it was left half voided."""

CLOSED_AS: Final = "voided"
"""The reason of the close, where the session was not closed before."""

LEFT_OPEN: Final = "it is open: its writer may live; fence=True takes it away from that one"


class Voided(NamedTuple):
    """A session that was to be voided, and the policy versions it names.

    `step` is that of its annotation; None where it was left, and `left` says why.
    """

    session: str
    step: int | None
    policies: tuple[str, ...]
    left: str | None = None


def void_sessions(
    place: Place, where: SessionFilter | Iterable[str], *, reason: str, fence: bool
) -> Iterator[Voided]:
    """Void each session that passes, one after the other; those that are voided are passed over.

    `where` is a filter, or the sessions' ids.

    With `fence` an open session is claimed, voided and closed: its writer's next append raises
    `FencedError`. Raises `ConfigError` for a filter that lets everything through,
    `SessionNotFoundError`, and what the log raises; what others did to one session meanwhile only
    leaves that one.
    """
    if isinstance(where, str):
        raise TypeError(f"give a filter, or ids in a list, not the text {where!r}")
    if isinstance(where, SessionFilter) and where._replace(voided=None) == SessionFilter():
        raise ConfigError(
            "no filter says which sessions are to be voided",
            hint="name a policy range, a training, or whatever they have in common",
        )
    if not reason.strip():
        raise ConfigError("no reason is given", hint="say why: whoever trains later reads it")
    if isinstance(where, SessionFilter):
        infos = place.log.list_sessions(where._replace(voided=False).in_range())
    else:
        # All are looked up before any is voided.
        infos = iter([place.log.session_info(name) for name in dict.fromkeys(where)])
    return _void_all(place, infos, reason, fence=fence)


def _void_all(
    place: Place, infos: Iterable[SessionInfo], reason: str, *, fence: bool
) -> Iterator[Voided]:
    for info in infos:
        if is_own(info.environment):
            continue  # It holds our books.
        left = partial(Voided, info.session_id, None, info.policies)
        try:
            voided = _void(place, info.session_id, reason, fence=fence)
        except IntegrityError as error:
            yield left(f"{type(error).__name__}: {error.message}")
            continue
        except (StepConflictError, FencedError) as error:
            if place.log.session_info(info.session_id).voided is not None:
                continue  # Another process voids the same sessions.
            yield left(f"{type(error).__name__}: {error.message}")
            continue
        if voided is not None:
            yield voided


def _void(place: Place, session_id: str, reason: str, *, fence: bool) -> Voided | None:
    """Void one session; None where that was done meanwhile."""
    log = place.log
    info = log.session_info(session_id)
    if info.voided is not None:
        return None
    if info.status == "open":
        if not (fence or _is_half_voided(log, info)):
            return Voided(session_id, None, info.policies, LEFT_OPEN)
        return _void_claimed(place, info, reason)
    addition = _addition(info, reason)
    try:
        step = append_to_ended(place, session_id, addition, _may_void)
    except FencedError:
        now = log.session_info(session_id)
        if now.status != "released" or now.head != info.head:
            raise
        # In Kafka nothing may follow a claim over a release until that is read back.
        return _void_claimed(place, now, reason)
    return None if step is None else Voided(session_id, step, info.policies)


def _may_void(info: SessionInfo) -> bool:
    if info.status == "open":
        raise StepConflictError(
            "the session was opened again meanwhile",
            hint="void it once more: it is left, or its writer is fenced",
            expected=info.head.step,
            actual=info.head.step,
            session_id=info.session_id,
        )
    return info.voided is None


def _void_claimed(place: Place, info: SessionInfo, reason: str) -> Voided | None:
    """Claim the session where it stands, then void and close it; a kill in between shows."""
    log = place.log
    claimed = _claimed(log, info)
    if claimed is None:
        return None
    batch = closing_batch(place, read_ended(log, claimed), _addition(claimed, reason))
    batch.append_to(log, head=claimed.head)
    return Voided(claimed.session_id, batch.events[0].event.step, claimed.policies)


def _claimed(log: EventLog, info: SessionInfo) -> SessionInfo | None:
    """The session once it is this writer's, nothing set aside; None where it is voided by now."""
    session_id, tries = info.session_id, 0
    while True:
        try:
            attempts = log.take_over(
                [session_id],
                stands_on={session_id: info.head.digest},
                reason=REASON,
                heads={session_id: info.head},
            )
            break
        except StepConflictError:
            tries += 1
            if tries == TRIES_MAX:
                raise
        info = log.session_info(session_id)
        if info.voided is not None or info.status == "closed":
            return None
    claimed = log.session_info(session_id)
    if claimed.attempt != attempts[session_id]:
        raise FencedError(
            f"another writer claimed the session (attempt {claimed.attempt}) at the same time",
            hint="void it once more",
            session_id=session_id,
        )
    return claimed


def _is_half_voided(log: EventLog, info: SessionInfo) -> bool:
    """Whether its last event is a claim to void it, whose process was killed right then."""
    record = next(log.read_session(info.session_id, info.head.step, info.head.step + 1))
    if record.prefix.kind != "session_resumed":
        return False
    body = decode_record(record).body
    return isinstance(body, SessionResumed) and body.reason == REASON


def _addition(info: SessionInfo, reason: str) -> Addition:
    value = result_content({"reason": reason, "policies": list(info.policies)})
    return Addition(REASON, Annotated(SESSION_VOIDED, value), "operator", CLOSED_AS)
