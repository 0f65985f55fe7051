"""`Delivery`: staged appends as one transaction, and what becomes of each where it fails.

A transaction that did not surely commit is settled before anything else is done: the id is
initialised again, the partitions are read to their end, and what does not stand there is judged
anew and sent again with the same bytes, until the deadline. Used by one thread, the writer's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eventlog.errors import (
    AppendUncertainError,
    FencedError,
    LogUnavailableError,
    SteplogError,
)
from eventlog.kafka.client import OutgoingRecord
from eventlog.kafka.client_errors import ClientFault, RecordsRefused
from eventlog.kafka.errors import as_ours, faults_as_ours
from eventlog.kafka.line_judge import CommitFirstError, LineJudge, Staged, receipt_of, records_of
from eventlog.kafka.mirrored_lines import MirroredLines
from eventlog.kafka.readiness import Readiness
from eventlog.kafka.topic_writer import TopicWriter
from eventlog.kafka.uncertain import Wished
from eventlog.keeping.requests import Failed, Outcomes, Request


class Delivery:
    """Commits what one writer has staged."""

    def __init__(
        self,
        topic: TopicWriter,
        mirrored: MirroredLines,
        judge: LineJudge,
        ready: Readiness,
        run: Callable[[Request], Any],
        note_uncertain: Callable[[Mapping[str, Wished]], None],
    ) -> None:
        """`run` judges a request anew; `note_uncertain` blocks sessions of unknown outcome."""
        self._topic = topic
        self._mirrored = mirrored
        self._judge = judge
        self._ready = ready
        self._run = run
        self._note_uncertain = note_uncertain

    def deliver(
        self, staged: list[tuple[Request, Staged]], *, was_refused: bool = False
    ) -> Outcomes:
        """Commit what is staged; what each request came to. See the module's docstring.

        `was_refused`: it was part of a transaction that the brokers refused, and so did not commit.
        """
        self._ready.hurry(min([request.deadline for request, _ in staged]))
        outcomes: Outcomes = []
        was_sent = was_lost = was_refused
        in_doubt = False
        while staged:
            try:
                self._require_ready(staged)
            except SteplogError as error:
                return outcomes + self._give_up(staged, error, was_sent=was_sent, unknown=in_doubt)
            if was_lost:
                staged, judged = self._judge_again(staged, was_sent=was_sent, in_doubt=in_doubt)
                outcomes += judged
                in_doubt = False
                if staged and not self._ready.left_s:
                    late = self._ready.late()
                    return outcomes + self._give_up(staged, late, was_sent=was_sent, unknown=False)
            try:
                offsets = self._commit(staged)
            except RecordsRefused as refused:
                return outcomes + self._part(staged, refused)
            except SteplogError as error:
                # The log is not what it was: what was sent now counts for nothing.
                return outcomes + [(request, Failed(error)) for request, _ in staged]
            except ClientFault as fault:
                was_lost = True
                in_doubt = getattr(fault, "sent", True)
                was_sent = was_sent or in_doubt
            else:
                return outcomes + self._finish(staged, offsets)
        return outcomes

    def _part(self, staged: list[tuple[Request, Staged]], refused: RecordsRefused) -> Outcomes:
        """One of them is to blame: the others, each by itself, must not suffer for it."""
        if len(staged) > 1:
            return [each for one in staged for each in self.deliver([one], was_refused=True)]
        request, one = staged[0]
        append = one.append
        if refused.sent and len(append.events) > 1:
            self._judge.sent.note(append)
        try:
            self._judge.require_sizes_anew(append)
        except SteplogError as error:
            return [(request, Failed(error))]
        return [(request, Failed(as_ours(refused)))]

    def _commit(self, staged: Sequence[tuple[Request, Staged]]) -> list[int]:
        """The offsets of all records, in order; none where nothing is left to be sent."""
        records: list[OutgoingRecord] = []
        for _, one in staged:
            records += records_of(one.append.events, one.partition)
        return self._topic.commit(records, self._ready.deadline) if records else []

    def _judge_again(
        self, staged: list[tuple[Request, Staged]], *, was_sent: bool, in_doubt: bool
    ) -> tuple[list[tuple[Request, Staged]], Outcomes]:
        """Judge what was sent in vain against what the log holds now; what is left, and answers."""
        left: list[tuple[Request, Staged]] = []
        outcomes: Outcomes = []
        for request, one in staged:
            try:
                result: Any = self._judge.judge_again(one)
            except CommitFirstError:
                # It followed what is sent again, but not plainly: that has to be committed first.
                self._judge.end()
                outcomes += self.deliver(left)
                left = []
                result = self._run(request)
            except LogUnavailableError as error:
                # Only the mirror can tell whether such a one is there.
                unknown = in_doubt and one.read_back
                outcomes += self._give_up(
                    [(request, one)], error, was_sent=was_sent, unknown=unknown
                )
                continue
            except SteplogError as error:
                result = Failed(error)
            if isinstance(result, Staged):
                self._judge.begin(result)
                left.append((request, result))
            else:
                outcomes.append((request, result))
        self._judge.end()
        return left, outcomes

    def _give_up(
        self,
        staged: list[tuple[Request, Staged]],
        error: SteplogError,
        *,
        was_sent: bool,
        unknown: bool,
    ) -> Outcomes:
        """Answer what cannot be brought to an end in time."""
        outcomes: Outcomes = []
        for request, one in staged:
            append = one.append
            if was_sent:
                self._judge.sent.note(append)
            answer = error
            if unknown:
                self._note_uncertain({append.session_id: Wished.of(append)})
                answer = AppendUncertainError(
                    f"{error.message}: whether the events are there is unknown",
                    hint="call reconcile for the session before more is appended to it",
                    session_id=append.session_id,
                )
            outcomes.append((request, Failed(answer)))
        return outcomes

    def _finish(self, staged: list[tuple[Request, Staged]], offsets: Sequence[int]) -> Outcomes:
        """The transaction is committed: receipts, and a look at what may have lost a race."""
        self._judge.look_anew()
        outcomes: Outcomes = []
        place = 0
        unread: list[tuple[Request, Staged]] = []
        for request, one in staged:
            place += len(one.append.events)
            last_offset = offsets[place - 1]
            self._judge.note_committed(one, last_offset + 1)
            if one.read_back:
                unread.append((request, one))
            else:
                outcomes.append((request, receipt_of(one.append, last_offset)))
        return outcomes + self._read_back(unread) if unread else outcomes

    def _read_back(self, staged: list[tuple[Request, Staged]]) -> Outcomes:
        """Whether claims that others could make too were the first ones."""
        try:
            with faults_as_ours():
                self._judge.refresh({one.partition for _, one in staged})
        except SteplogError as error:
            return self._give_up(staged, error, was_sent=False, unknown=True)
        outcomes: Outcomes = []
        for request, one in staged:
            first, last = one.append.events[0], one.append.events[-1]
            session_id, place = one.append.session_id, last.event
            claimed = self._mirrored.standing_receipt(
                session_id, place.step, first.event.step, place.attempt, first.digest
            )
            receipt = self._mirrored.standing_receipt(
                session_id, first.event.step, place.step, place.attempt, last.digest
            )
            if claimed is None or receipt is None:
                self._judge.drop(session_id)
                outcomes.append((request, _lost_race(one)))
            else:
                outcomes.append((request, receipt))
        return outcomes

    def _require_ready(self, staged: Sequence[tuple[Request, Staged]]) -> None:
        self._ready.require(lambda: self._judge.reread(one for _, one in staged))


def _lost_race(staged: Staged) -> Failed:
    return Failed(
        FencedError(
            "the session was claimed by another first",
            hint="read the session again, and resume it to claim it",
            session_id=staged.append.session_id,
            step=staged.append.expected_step,
        )
    )
