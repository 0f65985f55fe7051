"""Facts and how they are kept: values, events, schemas, sessions' lines, and the logs.

Import from the module that defines a name (`from eventlog.event import Event`); users import
`steplog`. Nothing here imports from `snapshots` or `replay`.
"""
