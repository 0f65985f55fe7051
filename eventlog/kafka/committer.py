"""`KafkaCommitter`: a writer's requests as transactions of its own producer.

Kafka has no conditional append. What replaces it: this producer's transactional id is the writer's
id, which every claim names; who takes sessions over initialises that id first, and from then on
nothing that this producer sends is ever committed. So a commit proves that nobody had claimed the
sessions before it, and an append that follows its line in memory needs no look at the log.

A transaction that did not surely commit is settled before anything else is done: the id is
initialised again, the partitions are read to their end, and what does not stand there is judged
anew and sent again with the same bytes, until the deadline. Used by one thread, the writer's.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from eventlog.errors import AppendUncertainError, FencedError, LogUnavailableError, SteplogError
from eventlog.kafka.client_errors import ClientFault, RecordsRefused
from eventlog.kafka.errors import as_ours, faults_as_ours
from eventlog.kafka.line_judge import CommitFirstError, LineJudge, Staged, receipt_of, record_of
from eventlog.kafka.mirrored_lines import MirroredLines
from eventlog.kafka.topic_writer import TopicWriter
from eventlog.kafka.uncertain import UncertainAppends, Wished
from eventlog.keeping.append_rule import Append
from eventlog.keeping.claims import Claimant
from eventlog.keeping.requests import BatchLimits, Failed, Outcomes, Request
from eventlog.log import Receipt

TRANSACTION_EVENTS_MAX: Final = 500
TRANSACTION_BYTES_MAX: Final = 512 * 1024
"""A transaction takes what waits, up to about so much; one larger append may be one alone."""


class KafkaCommitter:
    """Owns the producer and the lines of one writer. `requests.Committer`."""

    def __init__(
        self,
        topic: TopicWriter,
        mirrored: MirroredLines,
        claimant: Claimant,
        *,
        deadline_s: float,
    ) -> None:
        self.limits = BatchLimits(TRANSACTION_EVENTS_MAX, TRANSACTION_BYTES_MAX)
        self.place = topic.place
        self.medium = "the brokers"
        self.waits_for_lock = False
        self._topic = topic
        self._mirrored = mirrored
        self._claimant = claimant
        self._deadline_s = deadline_s
        self._deadline = 0.0
        self._judge = LineJudge(topic, mirrored, claimant, self._read_to_end, self._left_s)
        self._uncertain = UncertainAppends()
        self._staged: list[tuple[Request, Staged]] = []

    def serve(self, take: Callable[[], Sequence[Request]]) -> Outcomes:
        """Run what `take` gives; appends that fit together share one transaction."""
        batch = take()
        latest = time.monotonic() + self._deadline_s
        self._deadline = min(latest, *(request.deadline for request in batch), latest)
        self._judge.look_anew()
        outcomes: Outcomes = []
        for request in batch:
            try:
                result = self._run(request)
            except CommitFirstError:
                outcomes += self._commit_staged()
                result = self._run(request)
            if isinstance(result, Staged):
                self._judge.begin(result)
                self._staged.append((request, result))
            else:
                outcomes.append((request, result))
        return outcomes + self._commit_staged()

    def settle(self, outcomes: Outcomes, *, in_time: bool) -> None:
        """Block sessions whose outcome was told to be unknown; unblock those reconciled in time."""
        self._uncertain.settle(outcomes, in_time=in_time)

    def tidy(self) -> None:
        """Nothing is left to be done."""

    def close(self) -> None:
        """Let go of the producer: nothing is in flight any more."""
        self._topic.close()

    def stage(self, append: Append) -> Staged | Receipt:
        """See `LineJudge.stage`."""
        return self._judge.stage(append)

    def release(self, session_id: str, to_writer: str | None) -> Staged | Receipt:
        """See `LineJudge.release`."""
        return self._judge.release(session_id, to_writer)

    def reconcile(self, session_id: str) -> Receipt | None:
        """Whether the session's uncertain append is in the log, once and for all."""
        wished = self._uncertain.wish_of(session_id)
        if wished is None:
            return None
        if wished.transactional_id is not None:
            self._topic.settle_other(wished.transactional_id, self._deadline)
        self._judge.refresh([self._topic.partition_of(session_id)])
        self._judge.drop(session_id)
        return self._mirrored.standing_receipt(
            session_id, wished.first_step, wished.last_step, wished.attempt, wished.digest
        )

    def note_uncertain(self, wished: Mapping[str, Wished]) -> None:
        """Appends of unknown outcome: block their sessions until they are reconciled."""
        self.forget_lines(wished)
        self._uncertain.block(wished)

    def forget_lines(self, session_ids: Iterable[str]) -> None:
        """The sessions were claimed beside this committer: their lines are to be read anew."""
        for session_id in session_ids:
            self._judge.drop(session_id)

    def _read_to_end(self, partitions: Collection[int]) -> None:
        self._topic.read_to_end(partitions, self._deadline)

    def _left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _make_ready(self, staged: Sequence[tuple[Request, Staged]] = ()) -> None:
        """Have a producer; where it was lost, know what became of lines and of what was sent."""
        if self._topic.is_ready:
            return
        with faults_as_ours():
            self._topic.make_ready(
                self._deadline, lambda: self._judge.reread(one for _, one in staged)
            )

    def _run(self, request: Request) -> Any:
        """What the request comes to: a `Staged`, a value, or `Failed` with an error of ours."""
        try:
            self._uncertain.require_certain(request)
            self._make_ready()
            return request.run(self)
        except SteplogError as error:
            return Failed(error)
        except ClientFault as fault:
            return Failed(as_ours(fault))
        except CommitFirstError:
            raise
        except BaseException as error:  # noqa: BLE001 - answered; a writer must not die
            return Failed(error)

    def _commit_staged(self) -> Outcomes:
        staged, self._staged = self._staged, []
        self._judge.end()
        return self._deliver(staged) if staged else []

    def _deliver(self, staged: list[tuple[Request, Staged]]) -> Outcomes:
        """Commit what is staged; what each request came to. See the module's docstring."""
        outcomes: Outcomes = []
        was_sent = was_lost = False
        while staged:
            try:
                self._make_ready(staged)
            except SteplogError as error:
                return outcomes + self._give_up(staged, error, was_sent=was_sent, unknown=was_sent)
            if was_lost:
                staged, judged = self._judge_again(staged)
                outcomes += judged
                if staged and time.monotonic() >= self._deadline:
                    return outcomes + self._give_up(
                        staged,
                        _late(self.place, self._deadline_s),
                        was_sent=was_sent,
                        unknown=False,
                    )
            try:
                offsets = self._commit(staged)
            except RecordsRefused as refused:
                if len(staged) == 1:
                    return [*outcomes, (staged[0][0], Failed(as_ours(refused)))]
                # One of them is to blame: the others must not suffer for it.
                return outcomes + [each for one in staged for each in self._deliver([one])]
            except ClientFault as fault:
                was_lost = True
                was_sent = was_sent or getattr(fault, "sent", True)
            else:
                return outcomes + self._finish(staged, offsets)
        return outcomes

    def _commit(self, staged: Sequence[tuple[Request, Staged]]) -> list[int]:
        """The offsets of all records, in order; none where nothing is left to be sent."""
        records = [
            record_of(encoded, one.partition) for _, one in staged for encoded in one.append.events
        ]
        return self._topic.commit(records, self._deadline) if records else []

    def _judge_again(
        self, staged: list[tuple[Request, Staged]]
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
                outcomes += self._deliver(left)
                left = []
                result = self._run(request)
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
                self.note_uncertain({append.session_id: Wished.of(append)})
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


def _lost_race(staged: Staged) -> Failed:
    return Failed(
        FencedError(
            "the session was claimed by another first",
            hint="read the session again, and resume it to claim it",
            session_id=staged.append.session_id,
            step=staged.append.expected_step,
        )
    )


def _late(place: str, deadline_s: float) -> LogUnavailableError:
    return LogUnavailableError(
        f"{place} did not commit within {deadline_s:g} s",
        hint="check the brokers with `steplog doctor`, then try again",
    )
