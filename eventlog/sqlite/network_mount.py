"""Whether a path lies on a network file system, where SQLite's locks and shared memory fail.

`find_network_mount` is pure; `refuse_network_mount` reads this machine's mounts where it can.
"""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from eventlog.errors import ConfigError

_MOUNTS: Final = Path("/proc/self/mounts")

NETWORK_TYPES: Final = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre"),
        *("ncp", "ncpfs", "nfs", "nfs4", "orangefs", "panfs", "pvfs2", "smb2", "smb3", "smbfs"),
        *("wekafs", "vboxsf", "vmhgfs"),
    }
)
"""File system types of several machines: no shared memory between them, unsafe locks."""

NETWORK_FUSE_TYPES: Final = frozenset(
    {
        *("blobfuse", "blobfuse2", "ceph", "cephfs", "curlftpfs", "davfs2", "gcsfuse", "gluster"),
        *("glusterfs", "goofys", "gpfs", "juicefs", "mount-s3", "mountpoint-s3", "rclone"),
        *("s3fs", "s3ql", "seaweedfs", "smbnetfs", "sshfs", "vmhgfs-fuse"),
    }
)
"""The part after `fuse.` for the same. Other FUSE file systems (overlays, NTFS) are local."""

_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """Where a file system is mounted, and its type."""

    point: str
    kind: str


def find_network_mount(path: str, mounts: str) -> Mount | None:
    """The network mount that `path` (absolute, links resolved) lies on, or None.

    `mounts` is the text of `/proc/self/mounts`: lines of device, mount point, type, options; later
    lines lie over earlier ones. Lines that are none are passed over.
    """
    place = PurePosixPath(path)
    found: Mount | None = None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[1])
        over = PurePosixPath(point)
        if (place == over or over in place.parents) and (
            found is None or len(over.parts) >= len(PurePosixPath(found.point).parts)
        ):
            found = Mount(point, fields[2])
    return found if found is not None and _is_network(found.kind) else None


def refuse_network_mount(folder: Path) -> None:
    """Raise `ConfigError` naming folder and file system where `folder` is on a network mount.

    Where the machine does not tell its mounts (not Linux), nothing is refused.
    """
    try:
        mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return
    mount = find_network_mount(os.path.realpath(folder), mounts)
    if mount is not None:
        raise ConfigError(
            f"{folder} lies on a network file system ({mount.kind} at {mount.point}), where the "
            "log's locks do not hold",
            hint="keep log.db on a local disk; blobs and snapshots may be shared",
        )


def _is_network(kind: str) -> bool:
    if kind.startswith(("fuse.", "fuseblk.")):
        return kind.partition(".")[2].lower() in NETWORK_FUSE_TYPES
    return kind in NETWORK_TYPES
