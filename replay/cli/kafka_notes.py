"""What is told on stderr of a workspace in Kafka, beside any verb's answer."""

import os

from eventlog.kafka.security import unknown_variables
from replay.cli.output import Output, time_text
from replay.place import is_meant_for_kafka
from replay.workspace import Workspace


def warn_of_variables(output: Output, place: str) -> None:
    """Name the variables that look like settings for Kafka and are none: a typing error."""
    unknown = unknown_variables(os.environ)
    if unknown and is_meant_for_kafka(place):
        for name, hint in unknown.items():
            output.note(f"warning: the variable {name} is no setting: {hint}")


def tell_of_copy(output: Output, ws: Workspace) -> None:
    """Say how much of the log this machine's copy has, which is not brought up to date."""
    from eventlog.kafka_log import KafkaLog
    from eventlog.mirroring.examination import copy_state

    if not isinstance(ws.log, KafkaLog):
        return
    copy = copy_state(ws.log.mirror.reader)
    if not copy.filled:
        output.note(
            "warning: this machine's copy was never filled: nothing of the log can be seen in it; "
            "leave --no-refresh out, or run `steplog mirror --once`"
        )
        return
    events = f"{copy.events} event{'' if copy.events == 1 else 's'}"
    output.note(
        f"this machine's copy: {events}, up to {time_text(copy.newest_us)}; not brought up to date"
    )
