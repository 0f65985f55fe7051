"""Make one of the project's virtual environments, or keep the one that is there.

    python .ci/environment.py FOLDER --extras test [--editable]
    python .ci/environment.py --key --extras test

The environment holds the pinned dependencies of `constraints.txt`. It is kept as long as its
stamp, written last, equals the key: a hash of the constraints, of the `[project]` table and of the
Python version. So one whose making was interrupted is never used; two makers at once wait for each
other. Without `--editable` nothing in it points to this checkout, and any checkout may use it.
Only the standard library is used here; pip asks the package index it is configured for.
"""

import sys

if not (3, 11) <= sys.version_info[:2] < (3, 14):
    sys.exit("steplog needs Python 3.11, 3.12 or 3.13; this is " + sys.version.split()[0])

import argparse
import fcntl
import hashlib
import json
import platform
import shutil
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP = ".steplog-stamp"


def requirements(extras: list[str]) -> list[str]:
    """The dependencies of pyproject.toml, with those of these extras."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return wanted


def key(extras: list[str]) -> str:
    """What an environment of these extras depends on, hashed: 16 hex digits."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    parts = [
        json.dumps([settings["project"], settings["build-system"]], sort_keys=True),
        (ROOT / "constraints.txt").read_text(encoding="utf-8"),
        Path(__file__).read_text(encoding="utf-8"),
        ",".join(sorted(extras)),
        platform.python_version() + platform.machine() + sys.base_prefix,
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def ensure(
    folder: Path, extras: list[str], *, editable: bool, or_with: list[str] | None = None
) -> None:
    """Make `folder` the environment of these extras, unless it is already.

    One that has the extras `or_with` too, which are large, is left as it is.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    here = f" editable {ROOT}" if editable else ""
    stamp = key(extras) + here
    stamps = {stamp, key([*extras, *(or_with or [])]) + here}
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        # Freed by the kernel when the maker is killed and the pip it started has ended: that one
        # holds it too, or it would go on writing into the next maker's environment.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _stands(folder, stamps):
            _make(folder, extras, editable=editable, lock=lock.fileno())
            (folder / STAMP).write_text(stamp, encoding="utf-8")


def _stands(folder: Path, stamps: set[str]) -> bool:
    written = folder / STAMP
    if not written.exists() or written.read_text(encoding="utf-8") not in stamps:
        return False
    # The Python it was made from may be gone since.
    python = folder / "bin/python"
    return python.exists() and subprocess.run([python, "-c", ""], check=False).returncode == 0


def _make(folder: Path, extras: list[str], *, editable: bool, lock: int) -> None:
    if folder.exists() and any(folder.iterdir()):
        if not (folder / STAMP).exists():
            sys.exit(f"{folder} was not made here, and is left alone: name another (make VENV=...)")
        shutil.rmtree(folder)
    folder.mkdir(exist_ok=True)
    (folder / STAMP).touch()  # Ours from the first moment, finished when the key is in it.
    print(f"making {folder} (Python {platform.python_version()})", file=sys.stderr, flush=True)
    install = ["-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
    install += ["--root-user-action=ignore"]
    here = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    python = str(folder / "bin/python")
    steps = [
        [sys.executable, "-m", "venv", str(folder)],
        [python, *install, "-c", str(ROOT / "constraints.txt"), *requirements(extras)],
        *([[python, *install, *here]] if editable else []),
    ]
    for step in steps:
        subprocess.run(step, check=True, pass_fds=[lock])


def main() -> None:
    """Parse the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--extras", default="", help="names from pyproject.toml, with commas")
    parser.add_argument("--or-with", default="", help="extras that may be there too")
    parser.add_argument("--editable", action="store_true", help="install this checkout in it too")
    parser.add_argument("--key", action="store_true", help="print the key and make nothing")
    arguments = parser.parse_args()
    extras, or_with = (
        [extra for extra in names.split(",") if extra]
        for names in (arguments.extras, arguments.or_with)
    )
    if arguments.key:
        print(key(extras))
        return
    if arguments.folder is None:
        parser.error("which folder?")
    try:
        folder = arguments.folder.absolute()
        ensure(folder, extras, editable=arguments.editable, or_with=or_with)
    except subprocess.CalledProcessError as error:
        sys.exit(f"could not make {arguments.folder}: {error}; see above")


if __name__ == "__main__":
    main()
