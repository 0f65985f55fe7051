"""`record_late_verification`: a verdict on a closed session, brought by any process.

Claimed, judged and closed again in one append, see `ended_sessions`: no crash leaves it open.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypedDict

from eventlog.blob_store import BlobStore
from eventlog.content import result_content
from eventlog.errors import StepConflictError
from eventlog.event import Verified
from eventlog.log import EventLog, SessionInfo
from eventlog.recording.given_numbers import component_numbers, require_duration, reward_number
from replay.ended_sessions import Addition, Place, append_to_ended

REASON: Final = "late verification"
"""The reason that the claim gives."""


class VerificationFields(TypedDict, total=False):
    """What `SessionRecorder.record_verification` takes beside the reward and the verifier."""

    verifier_version: str
    components: Mapping[str, float] | None
    input: object
    output: object
    mask_sample: bool
    failure_kind: str | None
    about_step: int | None
    supersedes_step: int | None
    duration_us: int


def verification_body(reward: float | None, verifier: str, fields: VerificationFields) -> Verified:
    """The judgement as an event's body; `input` and `output` as a tool's results are taken."""
    duration_us = fields.get("duration_us", 0)
    require_duration(duration_us)
    return Verified(
        verifier=verifier,
        verifier_version=fields.get("verifier_version", ""),
        reward=reward_number(reward),
        components=component_numbers(fields.get("components")),
        input=result_content(fields["input"]) if "input" in fields else None,
        output=result_content(fields["output"]) if "output" in fields else None,
        mask_sample=fields.get("mask_sample", False),
        failure_kind=fields.get("failure_kind"),
        about_step=fields.get("about_step"),
        supersedes_step=fields.get("supersedes_step"),
        duration_us=duration_us,
    )


def record_late_verification(
    log: EventLog,
    blobs: BlobStore,
    session_id: str,
    verified: Verified,
    *,
    clock_us: Callable[[], int],
) -> int:
    """Append claim, `verified` and the close again, all or none; the verification's step.

    Raises `SessionNotFoundError`; `StepConflictError` for a session that is not closed, or that
    others add to all the while; what appending raises.
    """
    addition = Addition(REASON, verified, "verifier", "done")
    step = append_to_ended(Place(log, blobs, clock_us), session_id, addition, _require_closed)
    assert step is not None, "a closed session takes a verification"
    return step


def _require_closed(info: SessionInfo) -> bool:
    if info.status == "closed":
        return True
    raise StepConflictError(
        f"the session is {info.status}: a late verification is for a closed one",
        hint="its recorder judges it with record_verification; else resume it and close it first",
        expected=info.head.step,
        actual=info.head.step,
        session_id=info.session_id,
    )
