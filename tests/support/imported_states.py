"""Trace files in one workspace, and the state after every step of it; needs no test packages.

Run as `python -c "from tests.support.imported_states import main; main()" FOLDER FILE...`: imports
the files into a workspace at `FOLDER` and prints one line for each step of each session.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from replay.workspace import Workspace, open_workspace


def import_all(ws: Workspace, files: Iterable[Path]) -> list[tuple[str, int]]:
    """Import these; each session's id, and how many events it brought."""
    brought = []
    for file in files:
        for outcome in ws.import_file(file):
            assert outcome.problem is None, (file, outcome)
            assert outcome.session_id is not None
            brought.append((outcome.session_id, outcome.events))
    return brought


def state_lines(ws: Workspace) -> Iterator[str]:
    """Session, step, reducer and the digests of state and event, for every step."""
    for info in ws.sessions():
        for step in range(info.step_count):
            replayed = ws.replay(info.session_id, step)
            digests = f"{replayed.state_digest.hex()} {replayed.event_digest.hex()}"
            yield f"{info.session_id!r} {step} {replayed.reducer} {digests}"


def main() -> None:
    """Import, and print."""
    folder, *files = map(Path, sys.argv[1:])
    with open_workspace(folder) as ws:
        import_all(ws, files)
        sys.stdout.writelines(f"{line}\n" for line in state_lines(ws))
