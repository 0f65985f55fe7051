"""The limits that writing, reading, import and export of checkpoints share.

What one module alone keeps to stands in that module.
"""

from typing import Final

THREADS: Final = 4
"""Threads that encode or decode, hash, and read or write, in each rank; while some wait for the
disk, others work."""
THREADS_MAX: Final = 64
"""Beyond this they only wait for each other."""
PENDING_PER_THREAD: Final = 4
"""Parts that wait, for each thread: bounds the memory that copies of tensors take."""
COLLECTIVE_TIMEOUT_S: Final = 600.0
"""A rank that waits so long for the others gives up instead of hanging."""
