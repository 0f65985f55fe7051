"""Run a command that must not outlive another process, however that one ends.

    python guard.py --while PID [--grace SECONDS] [--remove FOLDER] --log FILE -- COMMAND...

Prints the command's process id and waits. When PID is gone, or when the guard gets SIGTERM, the
command gets SIGTERM, and SIGKILL after the grace (at once without one). When PID is gone the folder
goes too, since nobody else is left to remove it. Ends with the command's own exit code (128 plus
the signal's number, as shells have it). Should the guard itself be killed, Linux kills the command.
A process of its own, because Linux ties a child's life to that of the thread that started it, and
this one has but one thread. Used by local_kafka.py.
"""

import argparse
import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Final, NoReturn

PR_SET_PDEATHSIG: Final = 1
POLL_S: Final = 0.2
"""How long an end may go unseen where there is no pidfd to wait for (elsewhere than on Linux)."""


class _ToldToEnd(BaseException):
    """SIGTERM came."""


def main() -> NoReturn:
    """Parse the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--while", dest="pid", type=int, required=True)
    parser.add_argument("--grace", type=float, default=0.0)
    parser.add_argument("--remove")
    parser.add_argument("--log", required=True)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _be_told)
    # What a terminal sends to all is for the process that started us: it decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(arguments.log, "ab") as log:
        child = subprocess.Popen(
            arguments.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
    is_alone = False
    with contextlib.suppress(_ToldToEnd, BrokenPipeError):
        print(child.pid, flush=True)
        is_alone = _wait_for_either(child, arguments.pid)
    code = _end(child, arguments.grace)
    if is_alone and arguments.remove:
        shutil.rmtree(arguments.remove, ignore_errors=True)
    sys.exit(code)


def _be_told(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise _ToldToEnd


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for_either(child: "subprocess.Popen[bytes]", pid: int) -> bool:
    """Whether it is the other process that is gone."""
    if not hasattr(os, "pidfd_open"):
        while child.poll() is None and _is_there(pid):
            time.sleep(POLL_S)
        return not _is_there(pid)
    try:
        other = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    # A pidfd also tells the end of a process that nobody has waited for.
    gone, _, _ = select.select([other, os.pidfd_open(child.pid)], [], [])
    return other in gone


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _end(child: "subprocess.Popen[bytes]", grace_s: float) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if child.poll() is None and grace_s > 0:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
    if child.poll() is None:
        child.kill()
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()
