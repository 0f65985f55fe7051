"""Which mount a path lies on, and which file systems hold no log."""

import pytest

from eventlog.sqlite.network_mount import Mount, find_network_mount

MOUNTS = r"""
sysfs /sys sysfs rw 0 0
/dev/vda / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/data /data nfs4 rw 0 0
/dev/vdb /data/local xfs rw 0 0
//win/share /mnt/share\040one cifs rw 0 0
host:/x /mnt/ssh fuse.sshfs rw 0 0
C:\134 /mnt/c 9p rw 0 0
overlay /var/lib/x overlay rw 0 0
fuse-overlayfs /ctr fuse.fuse-overlayfs rw 0 0
/dev/sdc1 /mnt/ntfs fuseblk rw 0 0
mds:/ /lus lustre rw 0 0
ceph /ceph ceph rw 0 0
bucket /s3 fuse.s3fs rw 0 0
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data", "nfs4"),
        ("/data/me/runs", "nfs4"),
        ("/mnt/share one/x", "cifs"),
        ("/mnt/ssh/a/b", "fuse.sshfs"),
        ("/mnt/c/Users", "9p"),
        ("/lus/x", "lustre"),
        ("/ceph", "ceph"),
        ("/s3/bucket", "fuse.s3fs"),
    ],
)
def test_network_file_systems_are_found(path: str, kind: str) -> None:
    found = find_network_mount(path, MOUNTS)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    "path",
    ["/", "/tmp/x", "/data/local/x", "/datas", "/var/lib/x/y", "/ctr/a", "/mnt/ntfs", "/mnt/sshx"],
)
def test_local_ones_are_not(path: str) -> None:
    assert find_network_mount(path, MOUNTS) is None


def test_the_mount_over_another_counts() -> None:
    over = MOUNTS + "server:/t /tmp nfs rw 0 0\n"
    assert find_network_mount("/tmp/x", over) == Mount("/tmp", "nfs")
    assert find_network_mount("/tmp/x", over + "tmpfs /tmp tmpfs rw 0 0\n") is None


def test_no_mounts_refuse_nothing() -> None:
    assert find_network_mount("/data/me", "") is None
