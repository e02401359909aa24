"""The command lines of the programs that make environments; most of them are on few machines."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from kestrelctl.core.environments import driver_commands as commands
from kestrelctl.core.environments.environment_class import EnvironmentClass, EnvironmentResources
from kestrelctl.core.environments.names import EnvironmentOwner
from kestrelctl.core.environments.worker_command import INSIDE

OWNER = EnvironmentOwner("pool.example", "w1")
NAME = OWNER.name(3)
OWN = "/var/lib/kestrel/running/e"
RUN = ("sh", "-c", "true")


def wanted(kind: str, cpus: float = 0, memory_bytes: int = 0) -> EnvironmentClass:
    resources = EnvironmentResources(cpus=cpus, memory_bytes=memory_bytes)
    return EnvironmentClass(name="e", kind=kind, image="debian:13", resources=resources)


def pairs(argv: tuple[str, ...]) -> set[tuple[str, str]]:
    return set(pairwise(argv))


def test_a_virtual_environment_is_made_by_uv_where_that_is() -> None:
    assert commands.venv_preparation("/e", "/r.txt", python="/usr/bin/python3", uv="/bin/uv") == [
        ("/bin/uv", "venv", "--quiet", "--no-project", "--python", "/usr/bin/python3", "/e"),
        ("/bin/uv", "pip", "install", "--quiet", "--python", "/e/bin/python", "-r", "/r.txt"),
    ]


def test_a_virtual_environment_is_made_by_python_alone() -> None:
    made, filled = commands.venv_preparation("/e", "/r.txt", python="/usr/bin/python3")
    assert made == ("/usr/bin/python3", "-m", "venv", "/e")
    assert filled[:4] == ("/e/bin/python", "-m", "pip", "install")
    assert filled[-2:] == ("-r", "/r.txt")


def test_a_virtual_environment_without_requirements_needs_no_pip() -> None:
    assert commands.venv_preparation("/e", "", python="python3") == [
        ("python3", "-m", "venv", "--without-pip", "/e")
    ]


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_a_container_says_whose_it_is_and_what_it_may_use(engine: str) -> None:
    argv = commands.container_start(
        engine, wanted(engine, 1.5, 1 << 30), "debian:13", OWNER, NAME, OWN, RUN
    )
    assert argv[:3] == (engine, "run", "--detach")
    assert argv[-4:] == ("debian:13", *RUN)
    assert {
        ("--name", NAME),
        ("--network", "host"),
        ("--label", f"kestrel.environments={OWNER.prefix}"),
        ("--label", "kestrel.pool=pool.example"),
        ("--label", "kestrel.worker=w1"),
        ("--cpus", "1.5"),
        ("--memory", "1073741824"),
        ("--volume", f"{OWN}:{INSIDE}"),
        ("--entrypoint", ""),
    } <= pairs(argv)


def test_containers_are_looked_for_by_their_owner() -> None:
    argv = commands.container_list("podman", OWNER)
    assert ("--filter", f"label=kestrel.environments={OWNER.prefix}") in pairs(argv)
    assert "--all" in argv, "those that have ended, too"


def test_images_are_looked_for_pulled_and_built() -> None:
    assert commands.image_check("docker", "a")[:3] == ("docker", "image", "inspect")
    assert commands.image_pull("podman", "a") == ("podman", "pull", "--quiet", "a")
    assert commands.image_build("podman", "t", "/r/Containerfile", "/r") == (
        *("podman", "build", "--quiet", "--tag", "t", "--file", "/r/Containerfile", "/r"),
    )


def test_a_tree_is_not_written_to_by_nspawn() -> None:
    argv = commands.nspawn_start("/tree", NAME, OWN, RUN)
    assert argv[0] == "systemd-nspawn"
    assert {
        f"--machine={NAME}",
        "--directory=/tree",
        "--read-only",
        f"--bind={OWN}:{INSIDE}",
    } <= set(argv)
    assert argv[-4:] == ("--", *RUN)


def test_a_tree_is_not_written_to_by_bubblewrap() -> None:
    argv = commands.chroot_start("/tree", OWN, RUN)
    assert argv[:4] == ("bwrap", "--ro-bind", "/tree", "/")
    assert ("--bind", OWN) in pairs(argv)
    assert {"--unshare-pid", "--die-with-parent", "--clearenv"} <= set(argv)
    assert argv[-4:] == ("--", *RUN)
    assert "--ro-bind-try" in argv
    assert "--ro-bind-try" not in commands.chroot_start("/tree", OWN, RUN, resolver=False)


def test_apptainer_shows_nothing_of_the_host() -> None:
    assert commands.apptainer_build("/e/image.sif", "docker://debian:13") == (
        *("apptainer", "--silent", "build", "/e/image.sif", "docker://debian:13"),
    )
    argv = commands.apptainer_start(wanted("apptainer", 2), "/e/image.sif", OWN, RUN)
    assert argv[:3] == ("apptainer", "--silent", "exec")
    assert {"--containall", "--pid", "--no-home"} <= set(argv)
    assert {("--bind", f"{OWN}:{INSIDE}"), ("--cpus", "2")} <= pairs(argv)
    assert argv[-4:] == ("/e/image.sif", *RUN)


def test_a_machine_is_handed_its_worker_and_its_token() -> None:
    text = commands.domain_definition(
        wanted("libvirt", 1.5, 1 << 30), NAME, "/e/<disk>", ("kestrelctl", "a b&c"), "TOKEN"
    )
    machine = ElementTree.fromstring(text)
    assert machine.findtext("name") == NAME
    assert machine.findtext("vcpu") == "2"
    assert machine.findtext("memory") == str(1 << 30)
    source = machine.find("devices/disk/source")
    assert source is not None
    assert source.get("file") == "/e/<disk>"
    assert [entry.text for entry in machine.iter("entry")] == [
        "io.systemd.credential:kestrel.worker=kestrelctl 'a b&c'",
        "io.systemd.credential:kestrel.token=TOKEN",
    ]


def test_a_machine_is_forgotten_when_it_ends() -> None:
    uri = "qemu:///system"
    assert commands.domain_start(uri, "/e/domain.xml")[3:] == (
        uri,
        "create",
        "--file",
        "/e/domain.xml",
    )
    assert commands.domain_list(uri)[3:] == (uri, "list", "--all", "--name")
    assert commands.domain_shutdown(uri, NAME)[3:] == (uri, "shutdown", "--domain", NAME)
    assert commands.domain_destroy(uri, NAME)[3:] == (uri, "destroy", "--domain", NAME)
    assert commands.disk_overlay("/i.qcow2", "/e/d.qcow2")[-2:] == ("qcow2", "/e/d.qcow2")
