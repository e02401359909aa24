"""The fast tests and a third of those of processes on Debian 13: its Python, OpenSSL and Prosody.

    python tests/check/debian_13.py             as root: makes a Debian in a folder, and removes it
    python tests/check/debian_13.py ARG...      runs what `./kestrel test ARG...` runs there

What the tests need is installed there by `./kestrel test`, from the lock file with its hashes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from check import THREE_FILES
from turns import CHECKOUT, commit_number

#: So long may all of it take; the whole check has an hour.
LONGEST_SECONDS = 2700
PARTS = 3
PACKAGES = ("ca-certificates", "e2fsprogs", "git", "iproute2", "procps", "python3-venv")
AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
MAKE = ("mmdebstrap", "--quiet", "--variant=apt")
#: Ends with all that it started, and its mounts end with it. A shell stays its first process: tests
#: take the first one for another than their own.
APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
ENTER = """\
mount --bind "$1" "$1"  # programs ask which mount a path is on
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/run"
root=$1
shift
chroot "$root" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt \\
    NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt \\
    sh -ec 'cd /kestrel; exec ./kestrel test "$@"' sh "$@"
exit 0  # the last command would take the place of the shell
"""


def files_in_turn(turn: int) -> list[str]:
    """A third of the files with tests of real processes."""
    files = [
        str(file.relative_to(CHECKOUT))
        for directory in ("integration", "chaos")
        for file in sorted((CHECKOUT / "tests" / directory).glob("test_*.py"))
    ]
    return files[turn % PARTS :: PARTS]


def make(root: Path) -> None:
    """A Debian 13 with this checkout as it is now, changes that are not committed included."""
    subprocess.run(
        [*MAKE, f"--include={','.join(PACKAGES)}", "trixie", str(root)],
        check=True,
    )
    shutil.copy(Path("/") / AUTHORITIES, root / AUTHORITIES)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    shutil.copy("/etc/hosts", root / "etc/hosts")
    copy = root / "kestrel"
    subprocess.run(["git", "clone", "--quiet", str(CHECKOUT), str(copy)], check=True)
    here = ["git", "-C", str(CHECKOUT)]
    listed = [*here, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout
    for name in names.split("\0")[:-1]:
        (copy / name).unlink(missing_ok=True)
        if (CHECKOUT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, copy / name, follow_symlinks=False)


def main(words: list[str]) -> int:
    """Returns the exit status of the tests."""
    if os.geteuid() != 0:
        sys.exit("debian_13: only root can make a Debian in a folder")
    words = words or [
        *("-q", "-m", "not lab", *THREE_FILES.split(), "tests/unit", "tests/property"),
        *files_in_turn(commit_number()),
    ]
    with tempfile.TemporaryDirectory(prefix="kestrel-debian-13-") as directory:
        root = Path(directory) / "root"
        make(root)
        command = [*APART, "sh", "-ec", ENTER, "sh", str(root), *words]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as tests:
            try:
                return tests.wait(LONGEST_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"debian_13: not at the end after {LONGEST_SECONDS} seconds", flush=True)
                return 1
            finally:
                tests.kill()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
