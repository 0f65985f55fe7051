"""Making a topic that can hold a log, and examining one that is there.

Making is idempotent: what is there already is never changed, only examined. Examining reads the
live settings, since a topic that forgets, or answers before a second server has an event, looks
just like one that does not. It writes no record.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from eventlog.errors import ConfigError
from eventlog.kafka.client import TopicClient
from eventlog.kafka.client_errors import (
    AccessDenied,
    ClientFault,
    ProducerFenced,
    RequestRefused,
    TopicMissing,
)
from eventlog.kafka.errors import faults_as_ours
from eventlog.kafka.schema_topic import examine_schemas, publish_schemas, schema_topic_of
from eventlog.kafka.security import KafkaSecurity
from eventlog.kafka.topic_settings import (
    ANY_SERVER,
    PARTITIONS_DEFAULT,
    PARTITIONS_MAX,
    TopicFinding,
    TopicPlan,
    TopicWishes,
    judge_servers,
    judge_topic,
    judge_wishes,
    plan_schema_topic,
    plan_topic,
)

ANSWER_S: Final = 10.0
REPLICAS_MAX: Final = 32_767
TOLD_PARTITIONS_MAX: Final = 5


class Creation(NamedTuple):
    """What making a topic came to. `created` False: it was there, and has these numbers.

    `differences`: what was asked of it and is not so, since what is there is never changed.
    """

    topic: str
    created: bool
    partition_count: int
    replication_factor: int
    schemas_written: int
    differences: tuple[TopicFinding, ...] = ()


def create_topic(
    client: TopicClient,
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
    settings: Mapping[str, str] | None = None,
    bootstrap: str = ANY_SERVER,
) -> Creation:
    """Make the client's topic and its schema topic where they are missing; write the schemas.

    Idempotent. `bootstrap`: the servers, for the fixes. Raises `ConfigError` for numbers that
    cannot be, `LogUnavailableError`.
    """
    _require_between("partitions", partitions, PARTITIONS_MAX)
    _require_between("replication factor", replication_factor, REPLICAS_MAX)
    topic = client.topic
    with faults_as_ours():
        brokers = client.broker_count(ANSWER_S)
        plan = plan_topic(
            brokers,
            partitions=PARTITIONS_DEFAULT if partitions is None else partitions,
            replication_factor=replication_factor,
            settings=settings,
        )
        if plan.replication_factor > brokers:
            raise ConfigError(
                f"{plan.replication_factor} copies of each event, and servers are {brokers}",
                hint="a copy needs a server of its own: start more, or ask for fewer copies",
            )
        try:
            created = client.create_topic(topic, *plan)
        except RequestRefused as refused:
            raise ConfigError(
                f"the servers refuse to make topic {topic!r}: {_reason(refused)}",
                hint="mend the setting that it names",
            ) from refused
        found = client.describe(ANSWER_S)
        client.create_topic(schema_topic_of(topic), *plan_schema_topic(found.replication_factor))
        written = publish_schemas(client, topic)
    differences: tuple[TopicFinding, ...] = ()
    if not created:
        wanted = TopicWishes(partitions, replication_factor, settings)
        differences = tuple(judge_wishes(topic, wanted, TopicPlan(*found[2:]), bootstrap=bootstrap))
    return Creation(
        topic, created, found.partition_count, found.replication_factor, written, differences
    )


def _reason(refused: RequestRefused) -> str:
    """What the servers said, without the whole of what was asked."""
    said = re.search(r"error_message='(.*?)', topic_config", str(refused))
    return said[1] if said is not None else str(refused)


def examine_topic(client: TopicClient, *, bootstrap: str = ANY_SERVER) -> Iterator[TopicFinding]:
    """Look at the servers, the topic, its schema topic, and whether a writer may write.

    `bootstrap`: the servers, for the fixes. Raises `LogUnavailableError` where the servers do not
    answer, `ConfigError` where they refuse this user altogether.
    """
    topic = client.topic
    with faults_as_ours():
        brokers = client.broker_count(ANSWER_S)
        servers = _server_settings(client)
        yield from judge_servers(servers, brokers)
        try:
            found = client.describe(ANSWER_S)
        except TopicMissing:
            fix = "make it with `steplog topic create`, or name another"
            yield TopicFinding("topic", "failed", f"no topic {topic!r}", "a topic", fix)
            return
        yield TopicFinding("topic", "ok", f"{topic!r}, id {found.topic_id}")
        count = found.partition_count
        yield from judge_topic(
            topic, count, found.replication_factor, found.settings, bootstrap=bootstrap
        )
        yield _examine_starts(client, count)
        yield examine_schemas(client, topic)
        yield _examine_transactions(client)
        yield _say_rights(servers, topic)


def examine_security(bootstrap: Sequence[str], security: KafkaSecurity) -> TopicFinding:
    """What the way to the servers is worth. Asks nobody."""
    is_local = all(_is_loopback(server) for server in bootstrap)
    if not security.is_tls:
        found = f"{security.security_protocol}: not encrypted"
        if is_local:
            return TopicFinding("security", "ok", f"{found}, on this machine")
        secret = ", the password included" if security.is_sasl else ""
        return TopicFinding(
            "security",
            "warning",
            f"{found}{secret}",
            "SSL or SASL_SSL",
            "set security_protocol in [kafka] of steplog.toml",
        )
    if not security.ssl_check_hostname:
        fix = "leave ssl_check_hostname as it is by default"
        found = f"{security.security_protocol}, without a look at the servers' names"
        return TopicFinding("security", "warning", found, "names are checked", fix)
    return TopicFinding("security", "ok", security.security_protocol)


def _is_loopback(server: str) -> bool:
    host = server.rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or host.startswith("127.")


def _require_between(name: str, number: int | None, largest: int) -> None:
    if number is not None and not 0 < number <= largest:
        raise ConfigError(f"{name} is {number}", hint=f"choose from 1 to {largest}")


def _server_settings(client: TopicClient) -> Mapping[str, str]:
    """The servers' own settings; none where this user may not see them."""
    try:
        return client.broker_settings(ANSWER_S)
    except AccessDenied:
        return {}


def _examine_starts(client: TopicClient, partition_count: int) -> TopicFinding:
    """Whether every partition still has its first record."""
    reader = client.open_reader(committed=True)
    try:
        starts = reader.log_starts(range(partition_count), ANSWER_S)
    except AccessDenied as denied:
        return TopicFinding("first records", "failed", str(denied), "", "allow Read on the topic")
    finally:
        reader.close()
    cut = [f"{partition} begins at {at}" for partition, at in sorted(starts.items()) if at > 0]
    if not cut:
        return TopicFinding("first records", "ok", "all there")
    told = ", ".join(cut[:TOLD_PARTITIONS_MAX])
    more = len(cut) - TOLD_PARTITIONS_MAX
    return TopicFinding(
        "first records",
        "failed",
        f"partition {told}{f', and {more} more' if more > 0 else ''}",
        "offset 0",
        "records were deleted: a mirror that has them still does; else read what is left with "
        "--allow-truncated",
    )


def transactional_prefix(topic: str) -> str:
    """What the transactional ids of all writers of a topic begin with: an ACL may name it."""
    return f"steplog.{topic}."


def _examine_transactions(client: TopicClient) -> TopicFinding:
    """Try to initialise a transactional id as writers do; nothing is written to the topic."""
    name = transactional_prefix(client.topic) + "doctor"
    producer = client.open_producer(name)
    try:
        producer.initialise(ANSWER_S)
    except ProducerFenced:
        pass  # By another doctor: so it can be done.
    except ClientFault as fault:
        return TopicFinding(
            "transactions",
            "failed",
            str(fault),
            f"transactional ids {transactional_prefix(client.topic)}*",
            "allow Write and Describe on these TransactionalIds (prefixed), see docs/kafka.md",
        )
    finally:
        producer.abandon()
    return TopicFinding("transactions", "ok", f"{name!r} could be initialised")


def _say_rights(servers: Mapping[str, str], topic: str) -> TopicFinding:
    """What cannot be seen from here is said to be so."""
    if servers.get("authorizer.class.name") == "":
        return TopicFinding(
            "rights",
            "warning",
            "the servers have no authorizer: whoever reaches them may write and delete",
            "ACLs",
            "set authorizer.class.name, and allow what docs/kafka.md lists",
        )
    return TopicFinding(
        "rights",
        "ok",
        f"not seen from here: Read, Write, Describe on {topic!r} and {schema_topic_of(topic)!r}; "
        f"Write, Describe on every TransactionalId {transactional_prefix(topic)}*",
    )
