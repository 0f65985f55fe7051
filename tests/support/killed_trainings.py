"""The example's training, killed at named points: `python -m tests.support.killed_trainings`.

    python -m tests.support.killed_trainings FOLDER STEPS KILL...

A KILL is RANK:POINT:COUNT: that rank gets SIGKILL when it comes to POINT for the COUNT-th time in
one run; with `0launcher:POINT:COUNT` the launcher gets it then. The training is run again after
each, and in the end until it is through; what it printed goes to FOLDER/printed, a line that begins
with `run` before each run.

torch takes seconds to import, so it is imported once here, and each launcher is forked from there,
as it forks its ranks.
"""

import functools
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import eventlog.recording.session_writer
import examples.train_policy
import replay.workspace
import snapshots.checkpoint_store
import snapshots.checkpoints.object_folder
import snapshots.sets.keeping
import snapshots.shard_saver
import snapshots.shards.policy_keeper
import snapshots.shards.set_restorer
import snapshots.shards.trained
import snapshots.training_run

_Point = tuple[Any, str, bool]
POINTS: Final[dict[str, _Point]] = {
    # Where it is, and whether the kill comes before it is done (else right after).
    "append": (eventlog.recording.session_writer.SessionWriter, "submit", False),
    "update": (examples.train_policy, "update", False),
    "publish": (snapshots.shards.policy_keeper, "record_publication", True),
    "published": (snapshots.shards.policy_keeper, "record_publication", False),
    "begin": (snapshots.sets.keeping, "begin_set", True),
    "begun": (snapshots.sets.keeping, "begin_set", False),
    "object": (snapshots.checkpoints.object_folder.ObjectFolder, "write_object", False),
    "objects": (snapshots.checkpoints.object_folder.ObjectFolder, "keep_objects", False),
    "manifest": (snapshots.checkpoint_store.CheckpointStore, "keep_manifest", False),
    "commit": (snapshots.sets.keeping, "commit_set", True),
    "committed": (snapshots.sets.keeping, "commit_set", False),
    "head": (snapshots.sets.keeping.SetKeeper, "_let_go", True),
    "restore": (snapshots.shards.trained.Trained, "read", True),
    "loaded": (snapshots.shards.trained.Trained, "put_in", False),
    "rewind": (snapshots.shards.set_restorer, "rewind_sessions", True),
    "rewound": (snapshots.shards.set_restorer, "rewind_sessions", False),
    "void": (replay.workspace.Workspace, "void_sessions", True),
    "voided": (replay.workspace.Workspace, "void_sessions", False),
    "resumed": (replay.workspace.Workspace, "resume", False),
}
ANY: Final = "call"
"""The point that every call of a function of ours is."""


class Kill(NamedTuple):
    """`rank` comes to `point` for the `count`-th time: then it is killed, or its launcher is.

    The ranks of a killed launcher must end by themselves.
    """

    rank: int
    launcher: bool
    point: str
    count: int

    @classmethod
    def parse(cls, text: str) -> "Kill":
        """Of `0:object:3`, or `0launcher:object:3`."""
        who, point, count = text.split(":")
        return cls(int(who[0]), who.endswith("launcher"), point, int(count))

    def strike(self) -> None:
        """Called in the rank."""
        os.kill(os.getppid() if self.launcher else os.getpid(), signal.SIGKILL)
        if self.launcher:
            threading.Event().wait()  # Until this rank is ended, as it must be.


def main() -> None:
    """Run the training, with a kill each, and until it is through."""
    warnings.simplefilter("ignore")
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    with (folder / "printed").open("ab", buffering=0) as printed:
        for text in sys.argv[3:]:
            printed.write(f"run {text}\n".encode())
            if run(folder, steps, printed.fileno(), Kill.parse(text)) == 0:
                return
        printed.write(b"run\n")
        code = run(folder, steps, printed.fileno(), None)
        if code != 0:
            sys.exit(f"undisturbed it ended with {code}")


def run(folder: Path, steps: int, printed: int, kill: Kill | None) -> int:
    """Run the training once; how its launcher ended. Returns when its ranks have ended too."""
    ranks_end, launchers_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ranks_end)
            os.dup2(printed, 1)
            if kill is not None:
                arm(kill)
            code = examples.train_policy.launch(str(folder / "workspace"), steps)
        except BaseException:  # noqa: BLE001  (a forked launcher ends here, whatever it met)
            traceback.print_exc()
            os._exit(3)
        os._exit(code)
    os.close(launchers_end)
    with open(ranks_end, "rb") as alive:
        alive.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def arm(kill: Kill) -> None:
    """Make the ranks that this launcher forks come to the kill."""
    left = [kill.count]

    def came() -> None:
        left[0] -= 1
        if left[0] == 0:
            kill.strike()

    train = examples.train_policy.train

    def armed(rank: int, *arguments: Any) -> None:
        if rank == kill.rank:
            if kill.point == ANY:
                sys.setprofile(functools.partial(_on_call, came))
            else:
                _wrap(*POINTS[kill.point], came)
        train(rank, *arguments)

    examples.train_policy.train = armed


def _wrap(owner: Any, name: str, before: bool, came: Callable[[], None]) -> None:
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def counted(*args: Any, **kwargs: Any) -> Any:
        if before:
            came()
        value = plain(*args, **kwargs)
        if not before:
            came()
        return value

    setattr(owner, name, counted)


def _on_call(came: Callable[[], None], frame: Any, event: str, _value: Any) -> None:
    if event == "call" and frame.f_globals.get("__name__", "").startswith(_OURS):
        came()


_OURS: Final = ("eventlog.", "snapshots.", "replay.")

if __name__ == "__main__":
    main()
