"""`SourceWatch`: is the topic there, and still the one that is mirrored? Asked again and again."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from eventlog.errors import ConfigError, TopicChangedError
from eventlog.kafka.client import TopicClient
from eventlog.kafka.client_errors import BrokersUnavailable, TopicMissing
from eventlog.kafka.errors import faults_as_ours
from eventlog.mirroring.file import MirrorFile
from eventlog.mirroring.reader import MirrorReader
from eventlog.mirroring.rows import Source
from eventlog.mirroring.topic_check import require_same_topic

IDENTIFY_EVERY_S: Final = 30.0
"""The topic's id and partitions are asked for again at least so often."""
ASK_S: Final = 5.0
"""One question may take so long; it is put again until the deadline."""
FIRST_ANSWER_S: Final = 10.0
"""A read by who has never reached a broker ends by then: most likely the address is wrong, which is
told while somebody still looks. It is enough for an election, or for a broker that restarts."""
RETRY_S: Final = 0.05
LEAST_S: Final = 0.05
"""A question whose deadline is near, or past, is given so long at least."""

T = TypeVar("T")


class SourceWatch:
    """Knows what is mirrored, and holds it against the topic."""

    def __init__(
        self, client: TopicClient, file: MirrorFile, reader: MirrorReader, folder: Path
    ) -> None:
        self._client = client
        self._file = file
        self._reader = reader
        self._folder = folder
        self._source: Source | None = None
        self._asked_at = 0.0
        self.has_answered = False
        """Whether any broker ever answered here."""

    def current(self, deadline: float, first_by: float | None = None) -> Source:
        """What is mirrored, held against the topic not long ago.

        Where no broker ever answered, none is waited for after `first_by`.
        """
        source = self._source
        if source is None or time.monotonic() - self._asked_at >= IDENTIFY_EVERY_S:
            if first_by is not None and not self.has_answered:
                deadline = min(deadline, first_by)
            source = self.identify(deadline)
        return source

    def identify(self, deadline: float) -> Source:
        """Hold what is mirrored against the topic now; the first time, write down what it is.

        Raises `TopicChangedError`, `ConfigError`, and a `ClientFault` where nobody answers.
        """
        self._source = source = self._reader.source()
        found = ask(self._client.identity, deadline)
        self.has_answered = True
        if source is None:
            with self._file.transaction(deadline) as (store, _):
                if store.source is None:
                    store.begin_source(self._client.topic, found.topic_id, found.partition_count)
                source = store.source
        assert source is not None, "it was begun"
        require_same_topic(source, self._client.topic, found, self._folder)
        self._source, self._asked_at = source, time.monotonic()
        return source

    def doubt(self) -> None:
        """Something was in the way: ask before the next thing is done."""
        self._asked_at = 0.0

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Turn faults of the client library that leave into errors of ours."""
        try:
            with faults_as_ours():
                yield
        except ConfigError as error:
            source = self._source
            if source is None or not isinstance(error.__cause__, TopicMissing):
                raise
            raise TopicChangedError(
                f"topic {source.topic!r} (id {source.topic_id}) is not there any more",
                hint="what was mirrored of it can be read with --no-refresh",
            ) from error


def ask(question: Callable[[float], T], deadline: float) -> T:
    """Put a question to the brokers until it is answered, or the deadline is past."""
    began_at = time.monotonic()
    while True:
        try:
            return question(max(LEAST_S, min(ASK_S, deadline - time.monotonic())))
        except BrokersUnavailable as fault:
            if time.monotonic() >= deadline:
                fault.waited_s = time.monotonic() - began_at
                raise
            time.sleep(RETRY_S)
