"""What a forked child inherits of client libraries: never used there, and never finalised.

Parent and child share sockets and the kernel's poll set: closing a client in the child would take
the parent's connections out of that set; joining its threads, which the child does not have, would
never end. So the child forgets the objects, and keeps them alive until it ends, and past it.
"""

import ctypes
import os
from collections.abc import Iterable
from typing import Final, Protocol
from weakref import WeakSet


class LibraryHolder(Protocol):
    """Whoever keeps objects of a client library. Hashable, and can be referred to weakly."""

    def forget_inherited(self) -> Iterable[object]:
        """Called in a forked child: forget all objects of the library, and return them.

        Locks may have been held by threads that do not exist here: make them anew. May not raise.
        """
        ...


_holders: Final[WeakSet[LibraryHolder]] = WeakSet()


def watch(holder: LibraryHolder) -> None:
    """From now on a forked child leaves alone what this one holds."""
    _holders.add(holder)


def _forget_all() -> None:
    for holder in list(_holders):
        for each in holder.forget_inherited():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


os.register_at_fork(after_in_child=_forget_all)
