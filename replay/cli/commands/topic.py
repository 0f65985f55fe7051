"""`steplog topic create`: a topic in Kafka with the settings that a log needs."""

import re
from typing import Annotated, Final

import typer

from eventlog.kafka.topic import Creation, create_topic, examine_topic
from eventlog.kafka.topic_settings import PARTITIONS_DEFAULT
from replay.cli.exit_codes import ExitCode
from replay.cli.invocation import Invocation
from replay.cli.kafka_notes import warn_of_variables
from replay.cli.output import Output, Record
from replay.place import bootstrap_of, open_topic

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)

COLUMNS: Final = {
    "TOPIC": lambda one: str(one["topic"]),
    "CREATED": lambda one: "yes" if one["created"] else "no, already there",
    "PARTITIONS": lambda one: str(one["partitions"]),
    "COPIES": lambda one: str(one["copies"]),
    "SCHEMAS": lambda one: str(one["schemas"]),
}


@app.callback()
def topic() -> None:
    """Make a topic in Kafka that keeps what it is given."""


@app.command()
def create(
    context: typer.Context,
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help=f"Units of order, for the life of the topic ({PARTITIONS_DEFAULT}).",
        ),
    ] = None,
    copies: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Servers that hold each event (3, or all)."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of Kafka's; may be repeated."),
    ] = None,
) -> None:
    """Make the workspace's topic and its schema topic, with the settings that a log needs.

    Events are kept for ever, none is compacted away, and with three copies each is on two servers
    before it is acknowledged. Idempotent: a topic that is there is examined, never changed. What is
    wrong with it, or not as these options ask, is told on stderr with its fix, and then the exit
    code is 1.

    JSON keys: topic, created, partitions, copies, schemas.
    """
    output = Output.of(context)
    chosen = dict(map(_setting, settings or ()))
    place = Invocation.of(context).workspace
    warn_of_variables(output, place)
    with open_topic(place) as client:
        bootstrap = bootstrap_of(place)
        made = create_topic(
            client,
            partitions=partitions,
            replication_factor=copies,
            settings=chosen,
            bootstrap=bootstrap,
        )
        output.print_records([_row(made)], COLUMNS)
        # What was asked for goes before what we would have.
        asked = {one.name: one for one in made.differences}
        found = examine_topic(client, bootstrap=bootstrap)
        findings = [*asked.values(), *(one for one in found if one.name not in asked)]
    for one in findings:
        told = f"{one.name}: {one.found}"
        if one.name in asked:
            told += f"; wanted: {one.wanted}"
        if one.verdict == "failed":
            output.problem(told, one.fix)
        elif one.verdict == "warning":
            output.detail(f"{told}; {one.fix}")
    if any(one.verdict == "failed" for one in findings):
        raise typer.Exit(ExitCode.FAILED)


def _setting(text: str) -> tuple[str, str]:
    found = re.fullmatch(r"([a-z0-9.]+)=(.*)", text, re.DOTALL)
    if found is None:
        raise typer.BadParameter(f"write NAME=VALUE, as flush.messages=1, not {text!r}")
    return found[1], found[2]


def _row(made: Creation) -> Record:
    return {
        "topic": made.topic,
        "created": made.created,
        "partitions": made.partition_count,
        "copies": made.replication_factor,
        "schemas": made.schemas_written,
    }
