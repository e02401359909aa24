"""What is removed with a pool, also where somebody has mounted a disk."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from role_files import PLAYBOOKS, ROLES, load
from templating import render, values_of

SCRIPT = ROLES / "kestrel_package/files/remove_directories.sh"


def may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    words = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


MOUNTS = pytest.mark.skipif(not may_mount(), reason="nobody here may mount anything")


def remove(
    *directories: Path, mounts: str = "", then: str = ""
) -> subprocess.CompletedProcess[str]:
    """Remove these in a world of mounts of its own, in which `mounts` is done before."""
    words = " ".join(map(str, directories))
    text = f"set -e\n{mounts}\nstatus=0; {SCRIPT} {words} || status=$?\n{then}\nexit $status"
    own = ["unshare", "--map-root-user", "--mount"] if mounts else []
    return subprocess.run(
        [*own, "/bin/sh", "-c", text], capture_output=True, text=True, check=False
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A manager's directory, as deep as it may be."""
    store = tmp_path / "state/manager"
    (store / "deep/er").mkdir(parents=True)
    for file in ("kestrel.db", "deep/er/a", ".hidden"):
        (store / file).write_text("1")
    return store


def test_directories_are_removed_and_named(store: Path) -> None:
    done = remove(store, store.parent / "nowhere")
    assert (done.returncode, done.stdout) == (0, f"{store}\n")
    assert not store.exists()
    assert remove(store).stdout == ""


@MOUNTS
def test_a_disk_that_is_mounted_there_is_emptied_and_stays(store: Path) -> None:
    mounts = f"mount -t tmpfs none {store}\nmkdir -p {store}/deep; touch {store}/deep/a {store}/b"
    then = f"mountpoint -q {store}; ls -A {store} | wc -l"
    done = remove(store, mounts=mounts, then=then)
    assert (done.returncode, done.stdout.split()) == (0, [str(store), "0"]), done.stderr
    again = f"mount -t tmpfs none {store}"
    assert remove(store, mounts=again).stdout == "", "nothing was changed"


@MOUNTS
def test_what_is_around_a_mount_goes(store: Path) -> None:
    (store.parent / "worker").mkdir()
    mounts = f"mount -t tmpfs none {store}; touch {store}/a"
    done = remove(store.parent, mounts=mounts, then=f"find {store.parent}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(store.parent), str(store.parent), str(store)]


@MOUNTS
def test_what_cannot_be_removed_is_told(store: Path) -> None:
    mounts = f"mount -t tmpfs none {store}; touch {store}/a; mount -o remount,ro {store}"
    done = remove(store, mounts=mounts)
    assert done.returncode == 1
    assert f"{store}/a is left" in done.stderr
    assert "Read-only file system" in done.stderr


def allowed(mounts: str) -> bool:
    look = load(ROLES / "xmpp_server/tasks/check_remove.yml")[-1]
    given: dict[str, Any] = {
        **values_of("xmpp_server"),
        "__xmpp_server_mounts": {"stdout_lines": mounts.split()},
        **look["vars"],
    }
    return bool(render("{{ " + look["ansible.builtin.assert"]["that"] + " }}", given))


def test_a_mount_over_which_the_package_cannot_be_removed_is_found_before_anything_is() -> None:
    assert allowed("/ /var /var/lib/kestrel/manager /var/lib/prosody2")
    assert not allowed("/ /var/lib/prosody")
    assert not allowed("/ /var/lib/prosody/share%2epool")
    plays = [play["name"] for play in load(PLAYBOOKS / "reset.yml")]
    assert plays[:2] == ["Ask", "See whether the server can be removed"]
    assert all(name.startswith("Remove") for name in plays[2:])


@pytest.mark.parametrize("role", ["kestrel_package", "manager", "worker"])
def test_no_role_removes_a_directory_of_state_in_another_way(role: str) -> None:
    tasks = load(ROLES / role / "tasks/remove.yml")
    assert tasks
    for task in tasks:
        gone = task.get("ansible.builtin.file", {})
        paths = render("{{ paths }}", values_of(role) | {"paths": task.get("loop", [])})
        assert not [path for path in paths if path.startswith("/var/lib/kestrel/") and gone
                    and not path.endswith(".drained")]  # fmt: skip
