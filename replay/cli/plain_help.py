"""Help that reads alike with every typer: `FILE...` and `SESSION`, without braces and types."""

import re
from typing import Any


def plain_arguments(command: Any) -> Any:
    """The same command; its usage line and its help show its arguments' names and nothing else."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            _make_plain(parameter)
    for each in getattr(command, "commands", {}).values():
        plain_arguments(each)
    return command


def _make_plain(argument: Any) -> None:
    usage_pieces, help_record = argument.get_usage_pieces, argument.get_help_record

    def plain_pieces(context: Any) -> list[str]:
        return [re.sub(r"[{}]", "", piece) for piece in usage_pieces(context)]

    def plain_record(context: Any) -> tuple[str, str] | None:
        record = help_record(context)
        return record and (re.sub(r" <[^ ]*>$", "", record[0]), record[1])

    argument.get_usage_pieces, argument.get_help_record = plain_pieces, plain_record
