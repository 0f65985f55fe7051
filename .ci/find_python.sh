#!/bin/sh
# Print the path of a Python that can run steplog: 3.11, 3.12 or 3.13, with venv and sqlite3.
#
#   .ci/find_python.sh                     the first of python3.11, 3.12, 3.13, python3
#   .ci/find_python.sh --other-than 3.11   another minor version than that, the newest first
#
# Commands on the PATH come first, then what pyenv keeps. A candidate counts only if it runs (a
# pyenv shim may exist and fail). Exit 1, with the reason on standard error, where there is none.
set -u

other_than=""
if [ "${1:-}" = "--other-than" ]; then
    other_than=${2:?which version?}
fi

check='
import sys
version = "%d.%d" % sys.version_info[:2]
if version not in ("3.11", "3.12", "3.13") or version == sys.argv[1]:
    sys.exit(1)
import ensurepip, sqlite3, ssl, venv
print(sys.executable)
'

candidates() {
    if [ -z "$other_than" ]; then
        printf '%s\n' python3.11 python3.12 python3.13 python3
    else
        printf '%s\n' python3.13 python3.12 python3.11 python3
    fi
    if command -v pyenv >/dev/null 2>&1; then
        ls -d "$(pyenv root)"/versions/3.1[123].*/bin/python 2>/dev/null | sort -r
    fi
}

for candidate in $(candidates); do
    if found=$("$candidate" -c "$check" "$other_than" 2>/dev/null) && [ -n "$found" ]; then
        printf '%s\n' "$found"
        exit 0
    fi
done

if [ -z "$other_than" ]; then
    echo "steplog needs Python 3.11, 3.12 or 3.13 with its venv and sqlite3 modules, and found none" >&2
    echo "(tried: $(candidates | tr '\n' ' '))." >&2
    echo "Install one (on Debian and Ubuntu also its -venv package), or name it: make PYTHON=/path/to/python3.12" >&2
fi
exit 1
