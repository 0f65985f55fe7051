"""The parts of the SQLite keeper: connection, lock, committer, rows, damage."""
