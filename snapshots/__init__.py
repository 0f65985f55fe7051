"""States that were kept: one session's state after one step, and when to keep one.

Import from the module that defines a name (`from snapshots.snapshot import Snapshot`); users
import `steplog`. Builds on `eventlog`; nothing here imports from `replay`.
"""
