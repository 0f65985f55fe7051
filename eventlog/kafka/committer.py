"""`KafkaCommitter`: a writer's requests as transactions of its own producer.

Kafka has no conditional append. What replaces it: this producer's transactional id is the writer's
id, which every claim names; who takes sessions over initialises that id first, and from then on
nothing that this producer sends is ever committed. So a commit proves that nobody had claimed the
sessions before it, and an append that follows its line in memory needs no look at the log.

What is judged is committed by `delivery`, which also settles what fails. Used by one thread, the
writer's.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from eventlog.errors import SteplogError
from eventlog.kafka.client_errors import ClientFault
from eventlog.kafka.delivery import Delivery
from eventlog.kafka.errors import as_ours
from eventlog.kafka.line_judge import CommitFirstError, LineJudge, Staged
from eventlog.kafka.mirrored_lines import MirroredLines
from eventlog.kafka.readiness import Readiness
from eventlog.kafka.topic_writer import TopicWriter
from eventlog.kafka.uncertain import UncertainAppends, Wished
from eventlog.keeping.append_rule import Append
from eventlog.keeping.claims import Claimant
from eventlog.keeping.requests import BatchLimits, Failed, Outcomes, Request
from eventlog.log import Receipt

TRANSACTION_EVENTS_MAX: Final = 1_000
TRANSACTION_BYTES_MAX: Final = 1024 * 1024
"""A transaction takes what waits, up to about so much; one larger append may be one alone.

Of its time most is waiting, for brokers and for the interpreter: one of half the size takes four
fifths as long.
"""


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
        self._ready = Readiness(topic, deadline_s)
        self._judge = LineJudge(
            topic, mirrored, claimant, self._read_to_end, lambda: self._ready.left_s
        )
        self._delivery = Delivery(
            topic, mirrored, self._judge, self._ready, self._run, self.note_uncertain
        )
        self._uncertain = UncertainAppends()
        self._staged: list[tuple[Request, Staged]] = []

    def serve(
        self, take: Callable[[], Sequence[Request]], give: Callable[[Outcomes], None], /
    ) -> Outcomes:
        """Run what `take` gives; appends that fit together share one transaction."""
        batch = take()
        self._ready.begin()
        self._judge.look_anew()
        outcomes: Outcomes = []
        for request in batch:
            if outcomes and self._ready.must_wait(request.deadline):
                # The brokers are away, and it has time left: the others need not wait for it.
                give(outcomes)
                outcomes = []
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
        self._make_ready()
        return self._judge.stage(append)

    def release(self, session_id: str, to_writer: str | None) -> Staged | Receipt:
        """See `LineJudge.release`."""
        self._make_ready()
        return self._judge.release(session_id, to_writer)

    def reconcile(self, session_id: str) -> Receipt | None:
        """What of the session's uncertain appends is in the log, once and for all."""
        wishes = self._uncertain.wishes_of(session_id)
        if not wishes:
            return self._uncertain.settled(session_id)
        self._make_ready()
        for wished in wishes:
            if wished.transactional_id is not None:
                self._topic.settle_other(wished.transactional_id, self._ready.deadline)
        self._judge.refresh([self._topic.partition_of(session_id)])
        self._judge.drop(session_id)
        # Each stands on the one before: the last that is there was written with all before it.
        receipts = (
            self._mirrored.standing_receipt(
                session_id, wishes[0].first_step, each.last_step, each.attempt, each.digest
            )
            for each in reversed(wishes)
        )
        return next((receipt for receipt in receipts if receipt is not None), None)

    def note_uncertain(self, wished: Mapping[str, Wished]) -> None:
        """Appends of unknown outcome: block their sessions until they are reconciled."""
        self.forget_lines(wished)
        self.block_sessions(wished)

    def block_sessions(self, wished: Mapping[str, Wished]) -> None:
        """As `note_uncertain`, at once; any thread. Their lines are still to be forgotten."""
        self._uncertain.block(wished)

    def forget_lines(self, session_ids: Iterable[str]) -> None:
        """The sessions were claimed beside this committer: their lines are to be read anew."""
        for session_id in session_ids:
            self._judge.drop(session_id)

    def _read_to_end(self, partitions: Collection[int]) -> None:
        self._topic.read_to_end(partitions, self._ready.deadline)

    def _make_ready(self) -> None:
        self._ready.require(lambda: self._judge.reread(()))

    def _run(self, request: Request) -> Any:
        """What the request comes to: a `Staged`, a value, or `Failed` with an error of ours."""
        self._ready.hurry(request.deadline)
        try:
            self._uncertain.require_certain(request)
            self._uncertain.forget_settled(request)
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
        return self._delivery.deliver(staged) if staged else []
