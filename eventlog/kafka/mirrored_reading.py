"""`MirroredReading`: the reading half of a log in Kafka, through its mirror.

Each question first brings the mirror up to the end that the topic has now, unless reads are to
leave it as it is.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain

from eventlog.cut import Cut
from eventlog.errors import LogUnavailableError
from eventlog.event import session_id_problem
from eventlog.kafka.client import TopicClient
from eventlog.kafka.errors import faults_as_ours
from eventlog.kafka.schema_topic import find_schema_damage
from eventlog.keeping.kept_rows import require_group_name
from eventlog.keeping.line_plan import plan_line
from eventlog.keeping.line_reading import read_plan
from eventlog.log import EventLog, Finding, LogRecord, SessionFilter, SessionInfo
from eventlog.mirror import Mirror


class MirroredReading(EventLog):
    """Reads a topic. What writes to it is `KafkaLog`, which this is a part of."""

    topic: str
    refreshes: bool

    @property
    @abstractmethod
    def mirror(self) -> Mirror:
        """The local copy that is read."""

    @property
    @abstractmethod
    def client(self) -> TopicClient:
        """What asks the brokers."""

    def read_session(
        self,
        session_id: str,
        start_step: int = 0,
        end_step: int | None = None,
        *,
        through: bytes | None = None,
    ) -> Iterator[LogRecord]:
        """The standing line's records, or those of the chain that ends in `through`."""
        mirror = self._fresh()
        plan = plan_line(mirror.reader, session_id, through)
        return mirror.placed(read_plan(mirror.reader, plan, start_step, end_step))

    def read_records(self, session_id: str) -> Iterator[LogRecord]:
        """Every committed record of the session, also those that the rule refused, in log order."""
        return self._fresh().session_records(session_id)

    def tail_events(self, cut: Cut) -> Iterator[LogRecord]:
        """Every committed record from `cut` to the present end, partition after partition."""
        mirror = self._fresh()
        return mirror.tail(cut, mirror.cut())

    def end_cut(self) -> Cut:
        """The cut that covers every event acknowledged so far."""
        return self._fresh().cut()

    def commit_cut(self, group: str, cut: Cut) -> None:
        """Remember how far `group` has come, as the offsets of a consumer group."""
        require_group_name(group)
        client = self.client
        with faults_as_ours():
            known = client.group_offsets(group)
            ends = {part: end for part, end in cut.as_dict().items() if end > known.get(part, 0)}
            if ends:
                client.put_group_offsets(group, ends)

    def committed_cut(self, group: str) -> Cut:
        """The last cut committed by `group`."""
        if session_id_problem(group) is not None:
            return Cut.empty()
        with faults_as_ours():
            return Cut(self.client.group_offsets(group))

    def list_sessions(self, where: SessionFilter | None = None) -> Iterator[SessionInfo]:
        """Sessions that pass the filter, in the order the mirror met them."""
        return self._fresh().reader.list_sessions(where)

    def session_info(self, session_id: str) -> SessionInfo:
        """One session, its head held against the event it names."""
        return self._fresh().reader.session_info(session_id)

    def session_ids(self) -> Iterator[str]:
        """The ids in all head rows of the mirror that are sound."""
        return self._fresh().reader.session_ids()

    def find_damage(self, session_ids: Sequence[str] | None = None) -> Iterator[Finding]:
        """Re-hash and cross-check what the mirror holds, and list what the rule refused."""
        found = self._fresh().find_damage(session_ids)
        if session_ids is None and self.refreshes:
            found = chain(find_schema_damage(self.client, self.topic), found)
        return found

    def _fresh(self) -> Mirror:
        """The mirror, holding everything acknowledged so far, unless reads are to leave it."""
        mirror = self.mirror
        if self.refreshes:
            try:
                with faults_as_ours():
                    mirror.refresh()
            except LogUnavailableError as error:
                error.hint += "; `--no-refresh` reads this machine's copy"
                raise
        return mirror
