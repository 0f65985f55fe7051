"""Others' traces as sessions: one module for each format, from bytes to events.

`import_file.import_file` is what the command and the workspace call.
"""
