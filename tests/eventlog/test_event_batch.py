"""`EventBatch`: appended whole, an answer that did not come is settled, and a fork is one event."""

from typing import Any

import pytest

from eventlog.content import result_content
from eventlog.errors import AppendUncertainError, SessionExistsError, StepConflictError
from eventlog.event import Annotated, LineHead, SessionForked, SessionSeeded
from eventlog.keeping.kept_records import decode_record
from eventlog.log import Receipt
from eventlog.memory_log import MemoryLog
from eventlog.merkle_root import MerkleRoot
from eventlog.recording.event_batch import EventBatch, append_fork


def seeded(name: str) -> EventBatch:
    batch = EventBatch(LineHead.before_seed(name), lambda: 1)
    batch.add(SessionSeeded("desk", reducer="transcript"), "system")
    return batch


class _Unanswered(MemoryLog):
    """Every append is uncertain; `writes`: whether it was written all the same."""

    writes = True
    reconciled = 0

    def append_events(self, session_id: str, events: Any, **place: Any) -> Receipt:
        if self.writes:
            super().append_events(session_id, events, **place)
        raise AppendUncertainError("no answer", hint="reconcile", session_id=session_id)

    def reconcile(self, session_id: str) -> Receipt | None:
        self.reconciled += 1
        if not self.writes:
            return None
        head = self.session_info(session_id).head
        return Receipt(session_id, 0, head.step, head.attempt, head.digest, 0)


def test_an_append_without_an_answer_is_settled() -> None:
    log = _Unanswered()
    batch = seeded("s")
    batch.append_to(log)
    assert (log.reconciled, log.session_info("s").head) == (1, batch.head)


def test_an_append_without_an_answer_that_was_not_written_is_said() -> None:
    log = _Unanswered()
    log.writes = False
    with pytest.raises(AppendUncertainError):
        seeded("s").append_to(log)
    assert log.reconciled == 1
    assert list(log.list_sessions()) == []


def test_a_line_whose_head_has_moved_is_left() -> None:
    log = MemoryLog()
    first = seeded("s")
    first.append_to(log)
    batch = EventBatch(first.head, lambda: 1)
    batch.add(Annotated("a", result_content(1)), "system")
    with pytest.raises(StepConflictError):
        batch.append_to(log, head=first.head._replace(digest=b"x" * 32))


def test_the_root_that_it_goes_on_from_stays_as_it_is() -> None:
    first = seeded("s")
    before = MerkleRoot([first.events[0].data])
    batch = EventBatch(first.head, lambda: 1, root=before)
    batch.close("done")
    assert (before.count, batch.root.count) == (1, 2)


def test_a_fork_is_one_event_that_goes_on_from_its_parents() -> None:
    log = MemoryLog()
    first = seeded("s")
    first.append_to(log)
    at = first.head._replace(session_id="branch")
    append_fork(log, at, "s", {"why": "x"}, "system", lambda: 7)
    seed, fork = (decode_record(one) for one in log.read_session("branch"))
    assert seed == first.events[0].event
    assert fork.body == SessionForked("s", 0, None, {"why": "x"})
    assert (fork.parent, fork.time) == (first.head.digest, 7)
    with pytest.raises(SessionExistsError):
        append_fork(log, at, "s", {}, "system", lambda: 8)
