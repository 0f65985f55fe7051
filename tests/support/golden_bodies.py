"""What the golden events hold: for each kind a body with every field set, and a bare one."""

from collections.abc import Mapping
from typing import Final

from eventlog.content import (
    APPLICATION_JSON,
    CANONICAL_VALUE,
    OCTET_STREAM,
    STATE_PATCH,
    TEXT_PLAIN,
    BlobRef,
    Content,
)
from eventlog.event import (
    Annotated,
    Body,
    CheckpointBegun,
    CheckpointCommitted,
    EffectRecorded,
    Event,
    GapObserved,
    MessageAdded,
    Restore,
    SessionClosed,
    SessionForked,
    SessionLost,
    SessionReleased,
    SessionResumed,
    SessionSeeded,
    StateChange,
    StateChanged,
    SubjectErased,
    ToolCalled,
    ToolReturned,
    Trace,
    Verified,
)

DIGEST: Final = bytes(range(32))
TEXT: Final = Content(TEXT_PLAIN, "naïve ☃".encode())
JSON: Final = Content(APPLICATION_JSON, b'{"order": "A1"}')
VALUE: Final = Content(CANONICAL_VALUE, b"\x81\xa1a\x01")
TOKENS: Final = Content("application/vnd.steplog.int32", b"\x01\x00\x00\x00")
LOGPROBS: Final = Content("application/vnd.steplog.float32", b"\x00\x00\x80\xbf")
IN_BLOB: Final = Content(OCTET_STREAM, BlobRef(DIGEST[::-1], 1_000_000))
NOTE: Final = Content(TEXT_PLAIN, b"")

WHOLE_ENVELOPE: Final = Event(
    event_id=bytes.fromhex("018bcfe568007abc8def0123456789ab"),
    session_id="task-17/seed-3 é",
    step=412,
    attempt=3,
    kind="gap_observed",
    parent=DIGEST,
    state_change=StateChange(Content(STATE_PATCH, b"\x90"), DIGEST),
    time=1_700_000_000_123_456,
    actor="tool:lookup",
    trace=Trace(bytes(range(16)), bytes(range(8)), bytes(8)),
    body=GapObserved("replaced by each golden body"),
)

FULL: Final[Mapping[str, Body]] = {
    "session_seeded": SessionSeeded(
        environment="desk",
        environment_version="2.1",
        fingerprint="sha256:ab",
        task_id="task-17",
        seed=-3,
        request=JSON,
        response=TEXT,
        tools=IN_BLOB,
        reducer="captured",
        reducer_version="1",
        initial_state=VALUE,
        state_coverage="partial",
        excluded_paths=("$.cache", "$.lock"),
        policy="policy-7",
        writer="writer-1",
        parent_session="outer",
        training_session="training",
        training_step=900,
        sample_id="sample-1",
        group_id="group-1",
        rollout_index=5,
        split="train",
        metadata={"a": "1", "é": "2"},
    ),
    "tool_called": ToolCalled(
        tool="lookup",
        call_id="c1",
        arguments=JSON,
        transport="http",
        effects="idempotent",
        policy="policy-7",
        idempotency_key="key-1",
    ),
    "tool_returned": ToolReturned(
        called_step=411,
        status="interrupted",
        result=IN_BLOB,
        error_type="TimeoutError",
        duration_us=1_234_567,
        reward=-0.0,
        terminated=False,
        truncated=True,
        duplicate_of=409,
    ),
    "verified": Verified(
        verifier="desk-rules",
        verifier_version="4",
        reward=5e-324,
        components={"format": 1.0, "policy": float("-inf")},
        input=JSON,
        output=TEXT,
        mask_sample=True,
        failure_kind="judge",
        about_step=411,
        supersedes_step=410,
        duration_us=64,
    ),
    "message_added": MessageAdded(
        role="assistant",
        content=TEXT,
        request=JSON,
        tokens=TOKENS,
        logprobs=LOGPROBS,
        token_mask=TOKENS,
        policy_first="policy-7",
        policy_last="policy-8",
        finish_reason="stop",
        tokens_in=8191,
        tokens_out=8192,
        duration_us=2**40,
    ),
    "effect_recorded": EffectRecorded(effect="random", name="dice", value=VALUE),
    "state_changed": StateChanged(reason="reset by the operator"),
    "annotated": Annotated(name="note", about_step=3, value=TEXT),
    "session_forked": SessionForked(
        parent_session="task-17/seed-3",
        parent_step=411,
        writer="writer-2",
        changes={"policy": "policy-8"},
    ),
    "session_resumed": SessionResumed(
        from_step=411,
        reason="crash",
        writer="writer-2",
        over_release=True,
        snapshot_step=400,
        restore=Restore("training", 2),
    ),
    "session_released": SessionReleased(to_writer="writer-3"),
    "session_closed": SessionClosed(
        reason="error", error_type="ValueError", event_count=412, root=DIGEST
    ),
    "session_lost": SessionLost(reason="node gone"),
    "checkpoint_begun": CheckpointBegun("training", 900, {"0": 1_000, "1": 2**40}),
    "checkpoint_committed": CheckpointCommitted(DIGEST, 900),
    "gap_observed": GapObserved("offsets 4 to 9"),
    "subject_erased": SubjectErased("subject-1", "asked to"),
}

BARE: Final[Mapping[str, Body]] = {
    "session_seeded": SessionSeeded("desk"),
    "tool_called": ToolCalled("lookup", NOTE),
    "tool_returned": ToolReturned(0, "ok"),
    "verified": Verified("desk-rules"),
    "message_added": MessageAdded("user", NOTE),
    "effect_recorded": EffectRecorded("clock", "", NOTE),
    "state_changed": StateChanged(""),
    "annotated": Annotated("", NOTE),
    "session_forked": SessionForked("s", 0),
    "session_resumed": SessionResumed(0, ""),
    "session_released": SessionReleased(),
    "session_closed": SessionClosed("done", 0, bytes(32)),
    "session_lost": SessionLost(""),
    "checkpoint_begun": CheckpointBegun("", 0, {}),
    "checkpoint_committed": CheckpointCommitted(bytes(32), 0),
    "gap_observed": GapObserved(""),
    "subject_erased": SubjectErased("", ""),
}
