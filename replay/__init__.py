"""States brought back: reducers, replay to a step, branches, the workspace, and the command.

Import from the module that defines a name (`from replay.workspace import Workspace`); users
import `steplog`. Builds on `snapshots` and `eventlog`.
"""
