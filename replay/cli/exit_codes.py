"""What the command's exit codes mean. A code once released keeps its meaning; an unknown one must
be read as failure. Errors carry theirs (`SteplogError.exit_code`); these are for verdicts.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes; where several would fit, the worst finding of a run decides."""

    OK = 0
    FAILED = 1
    """Not done; for `diff`: the two differ."""
    USAGE = 2
    DIVERGED = 3
    INTEGRITY = 4
    NOT_FOUND = 5
    INCOMPLETE = 6
    """Incomplete or unverifiable: some of it was done, or cannot be proven."""
    UNAVAILABLE = 7
    """The same call may succeed later."""
    FENCED = 8
    """Fenced or locked: another writer owns it."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    """The reader of stdout went away before all was written: 128 and SIGPIPE, as in a shell."""
