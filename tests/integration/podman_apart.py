"""Podman with settings with which it works as root nearly anywhere, and a store of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

#: Makes control groups of the second version the only ones that podman sees, where it is not so.
CGROUPS_2 = (
    '[ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ] || '
    "{ umount -R /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup; }; echo ready; cat"
)


@contextmanager
def podman_apart(
    directory: Path, tree: Path, image: str, volumes: Sequence[str] = ()
) -> Iterator[tuple[str, ...]]:
    """Gives what goes before each call of podman, or of what calls it.

    Args:
        tree: what the one image in the store consists of.
        image: its name.
        volumes: what every container has mounted, as `--volume` takes it.
    """
    settings, store = directory / "containers.conf", directory / "storage.conf"
    settings.write_text(
        '[containers]\npids_limit = 0\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
        f"volumes = {json.dumps(list(volumes))}\n"
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        f'tmp_dir = "{directory}/libpod"\n'
    )
    store.write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{directory}/store"\nrunroot = "{directory}/run"\n'
    )
    settings_of_podman = (
        *("env", f"CONTAINERS_CONF={settings}", f"CONTAINERS_STORAGE_CONF={store}"),
    )
    holder = subprocess.Popen(
        ("unshare", "--mount", "--propagation", "private", "sh", "-ec", CGROUPS_2),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"ready\n"
    before = ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", *settings_of_podman)
    archive = directory / "image.tar"
    for command in (
        ("tar", "-C", str(tree), "-cf", str(archive), "."),
        (*before, "podman", "import", "--quiet", str(archive), image),
    ):
        subprocess.run(command, check=True, capture_output=True)
    try:
        yield before
    finally:
        remove = (*before, "podman", "rm", "--all", "--force")
        subprocess.run(remove, check=True, capture_output=True)
        holder.communicate()
