"""Processes that are there in a moment: forked from one that has imported everything already.

A Python process that imports a Kafka client takes a third of a second of one core; a test that
kills twenty of them would do little else. There is one nursery for each test process; its children
end with it, and it ends with the test process, also where that is killed.
"""

import ctypes
import functools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

from tests.support.processes import ROOT, WARNINGS

PR_SET_PDEATHSIG = 1
MESSAGE_BYTES_MAX = 64 * 1024
CODE = "import sys; from tests.support.log_worker import serve_nursery; serve_nursery()"


class Nursery:
    """The test's end of it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, *WARNINGS, "-c", CODE, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        theirs.close()

    def fork(self, argument: str, files: Sequence[int]) -> int:
        """A new process with these files as its standard input, output and error; its id."""
        socket.send_fds(self._control, [argument.encode()], files)
        return int(self._control.recv(MESSAGE_BYTES_MAX))


@functools.cache
def nursery() -> Nursery:
    """This test process's nursery."""
    return Nursery()


def end_with_parent() -> None:
    """Be killed when the process that started this one ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def serve(run: Callable[[str], None]) -> None:
    """The nursery's own process: `run` each argument in a child, until nobody asks any more."""
    end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    while True:
        argument, files, _, _ = socket.recv_fds(control, MESSAGE_BYTES_MAX, 3)
        if not argument:
            return
        pid = os.fork()
        if pid == 0:
            end_with_parent()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            for target, file in enumerate(files):
                os.dup2(file, target)
                os.close(file)
            run(argument.decode())
            os._exit(0)
        for file in files:
            os.close(file)
        control.sendall(str(pid).encode())
