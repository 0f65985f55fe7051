"""`python -m replay.cli`: the command `steplog` from a checkout that is not installed."""

import sys

from replay.cli.main import run_command

if __name__ == "__main__":
    sys.exit(run_command())
