"""`steplog checkpoint`: what torch checkpoints are kept, whether they are sound, what differs."""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import typer

from eventlog.errors import CheckpointError
from replay.checkpoint_examination import examine, targets_from, targets_in
from replay.checkpoint_views import (
    changed_row,
    checked_row,
    checkpoint_row,
    removed_row,
)
from replay.cli.checkpoint_aside import set_checkpoint_aside
from replay.cli.checkpoint_files import export_files, import_files
from replay.cli.checkpoint_place import (
    REF_HELP,
    CheckpointPlace,
    FolderOption,
    TrackOption,
    checkpoints_of,
    find_named,
    track_text,
)
from replay.cli.checkpoint_pointers import head, pin, unpin
from replay.cli.exit_codes import ExitCode
from replay.cli.output import NOTHING, Output, Record, shortened, time_text
from replay.cli.times import parse_duration
from replay.cli.value_text import bytes_text, value_text
from snapshots.checkpoint_retention import GRACE_S, collect_garbage
from snapshots.checkpoints.check import CheckedCheckpoint, CheckpointChecker, Soundness
from snapshots.checkpoints.difference import compare_checkpoints
from snapshots.checkpoints.inventory import ListedCheckpoint, Status, list_track, strangers
from snapshots.checkpoints.parts import PartReader
from snapshots.sets.journal import has_committed

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)

LIST_COLUMNS = {
    "TRACK": lambda one: track_text(one["track"]),
    "STEP": lambda one: str(one["step"]),
    "ID": lambda one: str(one["id"]),
    "WHAT": lambda one: _what(one),
    "MARKS": lambda one: ",".join(["HEAD"] * bool(one["head"]) + list(one["pins"])) or NOTHING,
    "CREATED": lambda one: time_text(one["created"]),
    "RANKS": lambda one: _or_nothing(one["world_size"]),
    "SIZE": lambda one: _size(one["raw_bytes"]),
    "STORED": lambda one: _size(one["stored_bytes"]),
    "SESSIONS": lambda one: _or_nothing(one["sessions"]),
}
CHECK_COLUMNS = {
    "TRACK": lambda one: track_text(one["track"]),
    "STEP": lambda one: str(one["step"]),
    "ID": lambda one: str(one["id"]),
    "VERDICT": lambda one: str(one["verdict"]),
    "PARTS": lambda one: str(one["parts"]),
    "SIZE": lambda one: _size(one["bytes"]),
}
DIFF_COLUMNS = {
    "NAME": lambda one: str(one["name"]),
    "CHANGE": lambda one: str(one["change"]),
    "BEFORE": lambda one: _side_text(one["before"]),
    "AFTER": lambda one: _side_text(one["after"]),
    "PARTS": lambda one: _share(one["parts_changed"], one["parts"]),
    "NUMBERS": lambda one: _share(one["numbers_changed"], one["numbers"]),
}
GC_COLUMNS = {
    "OBJECTS": lambda one: str(one["objects"]),
    "SIZE": lambda one: _size(one["bytes"]),
    "UNFINISHED": lambda one: ",".join(one["unfinished"]) or NOTHING,
}
EXIT_CODES = {
    Soundness.OK: ExitCode.OK,
    Soundness.INCOMPLETE: ExitCode.INCOMPLETE,
    Soundness.DAMAGED: ExitCode.INTEGRITY,
}


@app.callback()
def checkpoint() -> None:
    """List, check, compare and name torch checkpoints.

    Those of the workspace, or with --folder of any folder that dcp.save wrote to with steplog's
    ShardWriter. torch is needed for one thing only: to import tensors that torch's own folder does
    not hold in C order.
    """


@app.command("list")
def list_checkpoints(
    context: typer.Context, folder: FolderOption = None, track: TrackOption = None
) -> None:
    """List the checkpoints that are kept.

    Saves that were killed, or are under way, are incomplete. Exit code 4 where a manifest, HEAD or
    a pin is damaged, 6 where HEAD or a pin names what is not there.

    JSON keys: track, id, step, kind, status, head, pins, created, world_size, tensors, raw_bytes,
    stored_bytes, ancestor, training, sessions, adopted, manifest.
    """
    output = Output.of(context)
    damage: list[CheckpointError] = []
    with checkpoints_of(context, folder, track) as place:
        output.print_records(
            map(checkpoint_row, _listed(place, output, damage.append)),
            LIST_COLUMNS,
            f"no checkpoints in {place.root.folder}",
            minor=("SESSIONS", "RANKS", "CREATED", "SIZE"),
        )
    _tell_and_exit(output, damage)


@app.command()
def check(
    context: typer.Context,
    ref: Annotated[
        str | None, typer.Argument(metavar="REF", help=REF_HELP + " All without it.")
    ] = None,
    folder: FolderOption = None,
    track: TrackOption = None,
    log: Annotated[
        bool,
        typer.Option("--log", help="Also derive the log's Merkle trees anew: reads the whole log."),
    ] = False,
) -> None:
    """Read every part of checkpoints and compare its hash.

    Also of those that they rest on. A checkpoint set in a workspace is compared with its log too:
    that it was committed there, and where each session stood; of an adopted one the folder's files
    are compared. What is wrong is told on stderr,
    naming tensor and object. Exit code 4 where something is damaged, 6 where something is only
    missing: an object, or the end of a save that was killed.

    JSON keys: track, id, step, verdict, parts, bytes, problems.
    """
    output = Output.of(context)
    damage: list[CheckpointError] = []
    verdicts: set[Soundness] = set()
    with checkpoints_of(context, folder, track) as place:
        kept_log = None if place.workspace is None else place.workspace.log
        if ref is None:
            targets, unread = targets_in(place.tracks, damage.append, kept_log)
        else:
            targets, unread = targets_from(*find_named(place, ref)), []
        with output.progress("checking", sum(one.raw_bytes for one in targets)) as advance:
            checker = CheckpointChecker(advance)
            checked = (examine(one, checker, kept_log, trees=log) for one in targets)
            told = _told(output, checked, unread, verdicts)
            count = output.print_records(map(checked_row, told), CHECK_COLUMNS)
    if not count:
        output.note(f"no checkpoints in {place.root.folder}")
    elif verdicts == {Soundness.OK} and not damage:
        output.note(f"{count} checkpoint{'' if count == 1 else 's'}, all sound")
    _tell_and_exit(output, damage, verdicts)


@app.command()
def diff(
    context: typer.Context,
    first: Annotated[str, typer.Argument(metavar="A", help=REF_HELP)],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    folder: FolderOption = None,
    track: TrackOption = None,
    values: Annotated[
        bool, typer.Option("--values", help="Count the numbers that changed: reads those parts.")
    ] = False,
) -> None:
    """Show which tensors and values two checkpoints hold differently.

    Exit code 1 where any differs. Most is told by the hashes in the manifests, without reading the
    tensors.

    JSON keys: name, change, before, after, parts, parts_changed, numbers, numbers_changed.
    """
    output = Output.of(context)
    with checkpoints_of(context, folder, track) as place:
        sides = [
            PartReader(store, store.read_manifest(ref))
            for store, ref in (find_named(place, text) for text in (first, second))
        ]
        rows = map(changed_row, compare_checkpoints(sides[0], sides[1], count_numbers=values))
        count = output.print_records(rows, DIFF_COLUMNS, "no difference", minor=("PARTS",))
    if count:
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def gc(
    context: typer.Context,
    folder: FolderOption = None,
    grace: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Spare what is younger: 90s, 15m, 2h, 7d (a day without it)."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be taken away.")
    ] = False,
) -> None:
    """Take away what killed saves left behind.

    Objects that no checkpoint of any track names, and unfinished folders and files. Nothing goes
    while any manifest cannot be read, nor while that of a set which the log has committed is gone.

    JSON keys: objects, bytes, unfinished.
    """
    output = Output.of(context)
    grace_s = GRACE_S if grace is None else parse_duration(grace) / 1e6
    with checkpoints_of(context, folder) as place:
        log = None if place.workspace is None else place.workspace.log
        removed = collect_garbage(
            place.root,
            grace_s=grace_s,
            dry_run=dry_run,
            in_log=lambda set_id: log is not None and has_committed(log, set_id),
        )
        unfinished = [str(path.relative_to(place.root.folder)) for path in removed.unfinished]
        output.print_records([removed_row(removed, unfinished)], GC_COLUMNS)
    if dry_run:
        output.note("nothing was taken away")


app.command("pin")(pin)
app.command("unpin")(unpin)
app.command("head")(head)
app.command("export")(export_files)
app.command("import")(import_files)
app.command("set-aside")(set_checkpoint_aside)


def _listed(
    place: CheckpointPlace, output: Output, report: Callable[[CheckpointError], None]
) -> Iterator[ListedCheckpoint]:
    for store in place.tracks:
        for one in list_track(store, report):
            if one.problem is not None:
                report(one.problem)
            yield one
        for name in strangers(store):
            output.note(f"{store.track_folder / 'sets' / name} is no checkpoint: passed over")


def _told(
    output: Output,
    checked: Iterator[CheckedCheckpoint],
    unread: list[CheckedCheckpoint],
    verdicts: set[Soundness],
) -> Iterator[CheckedCheckpoint]:
    for found in (checked, unread):
        for one in found:
            verdicts.add(one.verdict)
            for problem in one.problems:
                output.problem(f"{track_text(one.track)}/{one.id}: {problem.message}")
            yield one


def _tell_and_exit(
    output: Output, damage: list[CheckpointError], verdicts: Iterable[Soundness] = ()
) -> None:
    for error in damage:
        output.problem(error.message, error.hint)
    codes = {error.exit_code for error in damage} | {EXIT_CODES[one] for one in verdicts}
    for code in (ExitCode.INTEGRITY, ExitCode.INCOMPLETE):
        if code in codes:
            raise typer.Exit(code)


def _what(one: Record) -> str:
    if one["status"] != Status.COMMITTED:
        return str(one["status"])
    of = "" if one["training"] is None else f" of {one['training']}"
    return f"{one['kind']}{of}{'' if one['adopted'] is None else ', adopted'}"


def _or_nothing(value: object) -> str:
    return NOTHING if value is None else str(value)


def _size(count: object) -> str:
    return bytes_text(count) if isinstance(count, int) else NOTHING


def _share(changed: object, total: object) -> str:
    if not isinstance(changed, int) or not isinstance(total, int):
        return NOTHING
    return f"{changed} of {total} ({changed / max(total, 1):.1%})"


def _side_text(side: object) -> str:
    if not isinstance(side, dict):
        return NOTHING
    if "dtype" in side:
        return f"{side['dtype']} {side['shape']}"
    if "value" in side:
        return shortened(value_text(side["value"]))
    return f"<{bytes_text(side['bytes'])}, sha256 {side['sha256'][:16]}>"
