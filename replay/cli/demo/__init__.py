"""The live example that `steplog demo` records, kills, resumes, replays and forks."""
