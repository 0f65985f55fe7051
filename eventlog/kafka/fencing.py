"""Claims by fencing: one transaction of a producer that has the owner's transactional id.

Initialising the id fences the owner: what it still sends is never committed. Then the log is read
to its end; if every line still stands where it stood, the claims are committed by that same
producer. Commit is the proof. One that fails is settled by initialising the id again and reading.
"""

import random
import time
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from eventlog.errors import AppendUncertainError, FencedError, LogUnavailableError, SteplogError
from eventlog.kafka.claim_making import ClaimMaker, PreparedClaim
from eventlog.kafka.client import OutgoingRecord, TopicClient, TopicProducer
from eventlog.kafka.client_errors import (
    BrokersUnavailable,
    ClientFault,
    ProducerBroken,
    ProducerFenced,
    RecordsRefused,
)
from eventlog.kafka.errors import as_ours
from eventlog.kafka.line_judge import records_of
from eventlog.kafka.uncertain import Wished
from eventlog.keeping.claims import Takeover
from eventlog.log import Receipt

FENCED_WAIT_MAX_S: Final = 0.5
"""Two that claim at once fence each other: each waits up to so long, by chance."""

COMMIT_MIN_S: Final = 0.5
"""A commit is given at least so long, also at the end of the deadline."""

_RETRY_S: Final = 0.05


class ClaimsBeside(Protocol):
    """Who is told of claims that are made beside its own thread; does not wait for that."""

    def forget_lines(self, session_ids: Sequence[str]) -> None:
        """The sessions were claimed: what is known of their lines is not true any more."""
        ...

    def block_sessions(self, wished: Mapping[str, Wished]) -> None:
        """It is not known whether the sessions were claimed."""
        ...


class Fencing:
    """Makes claims that fence a line's owner, for one writer."""

    def __init__(self, client: TopicClient, maker: ClaimMaker, writer: ClaimsBeside) -> None:
        self._client = client
        self._maker = maker
        self._writer = writer

    def claim(
        self, transactional_id: str, claims: Sequence[PreparedClaim], wish: Takeover | None
    ) -> list[Receipt]:
        """One transaction of a producer that fences the owner; made again until it is certain.

        `wish` None: the claims' events are given, and stay as they are.
        """
        was_sent = False
        while True:
            producer = self._client.open_producer(transactional_id)
            try:
                producer.initialise(self._maker.left_s())
                self._maker.read_to_end([claim.kept.session_id for claim in claims])
                receipts = self._maker.standing(claims) if was_sent else None
                if receipts is None:
                    claims = self._maker.still_right(claims, wish, was_sent=was_sent)
                    was_sent = True
                    self._commit(producer, claims)
                    self._maker.read_to_end([claim.kept.session_id for claim in claims])
                    receipts = self._maker.standing(claims)
                    if receipts is None:
                        raise _outrun(claims[0])
                self._writer.forget_lines([claim.kept.session_id for claim in claims])
                return receipts
            except RecordsRefused as refused:
                raise as_ours(refused) from refused
            except (BrokersUnavailable, ProducerFenced, ProducerBroken) as fault:
                if self._maker.left_s() <= 0:
                    raise self._unfinished(transactional_id, claims, fault, was_sent) from fault
                is_fenced = isinstance(fault, ProducerFenced)
                time.sleep(random.uniform(0, FENCED_WAIT_MAX_S) if is_fenced else _RETRY_S)
            except LogUnavailableError as error:
                raise self._unfinished(transactional_id, claims, error, was_sent) from error
            finally:
                producer.abandon()

    def _commit(self, producer: TopicProducer, claims: Sequence[PreparedClaim]) -> None:
        records: list[OutgoingRecord] = []
        for claim in claims:
            partition = self._maker.partition_of_session(claim.kept.session_id)
            records += records_of(claim.append.events, partition)
        producer.commit(records, max(COMMIT_MIN_S, self._maker.left_s()))

    def _unfinished(
        self,
        transactional_id: str,
        claims: Sequence[PreparedClaim],
        fault: ClientFault | SteplogError,
        was_sent: bool,
    ) -> SteplogError:
        """At the deadline: what is to be said, and remembered, of a claim without an answer."""
        if not was_sent:
            return as_ours(fault) if isinstance(fault, ClientFault) else fault
        uncertain = {
            claim.kept.session_id: Wished.of(claim.append, transactional_id) for claim in claims
        }
        self._writer.block_sessions(uncertain)
        return AppendUncertainError(
            f"{fault}: whether the session is claimed is unknown",
            hint="call reconcile for the session before anything else",
            session_id=claims[0].kept.session_id,
        )


def _outrun(claim: PreparedClaim) -> FencedError:
    return FencedError(
        "another claim, made without fencing this one, came first",
        hint="read the session again; `steplog check` lists what else was written to it",
        session_id=claim.kept.session_id,
        step=claim.append.expected_step,
    )
