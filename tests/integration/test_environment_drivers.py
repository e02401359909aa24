"""Environments are really made, started, found again and removed, by what this machine has."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from podman_apart import podman_apart

from kestrelctl.core.environments import driver_commands
from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.environments.names import EnvironmentOwner
from kestrelctl.core.environments.worker_command import INSIDE
from kestrelctl.worker.environments.container_driver import ContainerDriver
from kestrelctl.worker.environments.environment_driver import EnvironmentDriver, sweep
from kestrelctl.worker.environments.tree_drivers import ChrootDriver, NspawnDriver
from kestrelctl.worker.environments.venv_driver import VenvDriver

pytestmark = pytest.mark.timeout(180)

OWNER = EnvironmentOwner("pool.example", "drivers-test")
NAME, ANOTHER = OWNER.name(1), OWNER.name(2)
IMAGE = "localhost/kestrel-drivers-test:1"
#: Runs until it is asked to end, and says then that it was asked.
WAITS = (
    "trap 'echo asked >\"$0/asked\"; exit 0' TERM; "  # first: whoever reads the token may ask
    'read -r token; echo "$token" >"$0/said.new"; mv "$0/said.new" "$0/said"; '
    "while :; do sleep 0.05; done"
)
#: A recipe of a root tree: a shell and what the tests call, with the libraries that they need.
TREE = f"""#!{sys.executable}
import pathlib, re, shutil, subprocess, sys
root = pathlib.Path(sys.argv[1])
for directory in ("etc", "usr/bin", "bin", "lib", "lib64"):
    (root / directory).mkdir(parents=True, exist_ok=True)
for program in ("sh", "sleep", "mv"):
    found = shutil.which(program)
    shutil.copy(found, root / "usr/bin" / program)
    (root / "bin" / program).symlink_to("/usr/bin/" + program)
    listed = subprocess.run(["ldd", found], capture_output=True, text=True).stdout
    for library in re.findall(r"(/\\S+) \\(0x", listed):
        place = root / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)
(root / "etc/os-release").write_text("ID=kestrel\\n")
"""


def needs(program: str, *, root: bool = False) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    if root and os.geteuid() != 0:
        pytest.skip(f"{program} is for root alone")


@pytest.fixture
def tree_recipe(tmp_path: Path) -> str:
    recipe = tmp_path / "tree"
    recipe.write_text(TREE)
    recipe.chmod(0o755)
    return str(recipe)


class Kind:
    """A driver to try, and how a test looks into its environments."""

    def __init__(self, driver: EnvironmentDriver, wanted: EnvironmentClass, root: Path) -> None:
        self.driver = driver
        self.wanted = wanted
        self._root = root

    def own(self, name: str) -> Path:
        return self._root / "running" / name

    def inside(self, name: str) -> str:
        return str(self.own(name)) if self.wanted.kind == "venv" else INSIDE

    async def start(self, name: str) -> None:
        prepared = await self.driver.prepare(self.wanted)
        command = ("sh", "-c", WAITS, self.inside(name))
        await self.driver.start(name, self.wanted, prepared, command, "one-time")
        async with asyncio.timeout(30):
            while not (self.own(name) / "said").exists():
                found = (await self.driver.status())[name]
                assert found.running, found.said
                await asyncio.sleep(0.02)

    async def running(self) -> dict[str, bool]:
        return {name: each.running for name, each in (await self.driver.status()).items()}


def in_use_by(root: Path) -> list[str]:
    """Processes whose command line names a directory."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and str(root) in " ".join(
                process.cmdline()
            ):
                found.append(f"{process.pid} {process.cmdline()}")
    return found


def assert_unused(root: Path) -> None:
    """A process that was killed takes a moment to end."""
    give_up_at = time.monotonic() + 10
    while (found := in_use_by(root)) and time.monotonic() < give_up_at:
        time.sleep(0.05)
    assert found == []


KINDS = ("venv", "chroot", "nspawn", "podman")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    root = tmp_path / "environments"
    if request.param == "podman":
        before = request.getfixturevalue("podman")
        wanted = EnvironmentClass(name="e", kind="podman", image=IMAGE)
        yield Kind(ContainerDriver("podman", root, OWNER, before=before), wanted, root)
        assert_unused(root)
        return
    recipe = ""
    if request.param != "venv":
        needs(
            "bwrap" if request.param == "chroot" else "systemd-nspawn",
            root=request.param == "nspawn",
        )
        recipe = request.getfixturevalue("tree_recipe")
    drivers: dict[str, Callable[[Path], EnvironmentDriver]] = {
        "venv": VenvDriver, "chroot": ChrootDriver, "nspawn": NspawnDriver,
    }  # fmt: skip
    wanted = EnvironmentClass(name="e", kind=request.param, recipe=recipe)
    yield Kind(drivers[request.param](root), wanted, root)
    assert_unused(root)


@pytest.fixture
def podman(tmp_path: Path, tree_recipe: str) -> Iterator[tuple[str, ...]]:
    """What goes before each call of podman, whose store has nothing but one image."""
    needs("podman", root=True)
    needs("runc")
    tree = tmp_path / "image"
    subprocess.run((tree_recipe, str(tree)), check=True, capture_output=True)
    with podman_apart(tmp_path, tree, IMAGE) as before:
        yield before
        left = subprocess.run(
            (*before, *driver_commands.container_list("podman", OWNER)),
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        assert left == ""


async def test_an_environment_is_prepared_started_asked_to_end_and_gone(kind: Kind) -> None:
    await kind.start(NAME)
    assert (kind.own(NAME) / "said").read_text() == "one-time\n"
    assert await kind.running() == {NAME: True}
    asked = os.open(kind.own(NAME) / "asked", os.O_RDWR | os.O_CREAT)  # outlives its directory
    await kind.driver.stop(NAME)
    assert os.pread(asked, 100, 0) == b"asked\n"
    os.close(asked)
    assert await kind.running() == {}
    assert not kind.own(NAME).exists()


async def test_several_run_at_once_and_are_ended_alone(kind: Kind) -> None:
    await kind.start(NAME)
    await kind.start(ANOTHER)
    await kind.driver.stop(NAME)
    assert await kind.running() == {ANOTHER: True}
    await kind.driver.stop(ANOTHER)
    assert await kind.running() == {}


async def test_one_that_ends_by_itself_is_seen_and_can_be_stopped(kind: Kind) -> None:
    prepared = await kind.driver.prepare(kind.wanted)
    await kind.driver.start(NAME, kind.wanted, prepared, ("sh", "-c", "exit 3"), "")
    async with asyncio.timeout(30):
        while await kind.running() != {NAME: False}:
            await asyncio.sleep(0.02)
    await kind.driver.stop(NAME)
    assert await kind.running() == {}
    await kind.driver.stop(NAME)


def test_what_a_killed_process_has_started_is_found_and_removed_by_the_next(kind: Kind) -> None:
    owner = os.fork()
    if owner == 0:
        with contextlib.suppress(BaseException):
            asyncio.run(kind.start(NAME))
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(owner, 0)[1]) == -signal.SIGKILL
    assert list(asyncio.run(kind.running())) == [NAME]
    assert asyncio.run(sweep(kind.driver)) == [NAME]
    assert asyncio.run(kind.running()) == {}
    assert not kind.own(NAME).exists()


def test_libvirt_takes_the_machine_that_is_described_for_it(tmp_path: Path) -> None:
    """Its test driver forgets all when virsh ends: so virsh is given all commands at once."""
    needs("virsh")
    uri = "test:///default"
    wanted = EnvironmentClass(name="e", kind="libvirt", image="/srv/image.qcow2")
    definition = tmp_path / "domain.xml"
    definition.write_text(
        driver_commands.domain_definition(
            wanted, NAME, "/srv/disk.qcow2", ("kestrelctl", "worker"), "one-time", hypervisor="test"
        )
    )
    steps = (
        driver_commands.domain_start(uri, str(definition)),
        driver_commands.domain_list(uri),
        driver_commands.domain_shutdown(uri, NAME),
        ("virsh", "--quiet", "--connect", uri, "echo", "after"),
        driver_commands.domain_list(uri),
    )
    call = steps[0][:4]
    assert call == ("virsh", "--quiet", "--connect", uri)
    together = "; ".join(shlex.join(step[len(call) :]) for step in steps)
    done = subprocess.run((*call, together), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, _, after = done.stdout.partition("after")
    assert NAME in before.splitlines()
    assert NAME not in after.splitlines()
