"""Chooses the driver that makes environments of a kind."""

from __future__ import annotations

from pathlib import Path

from kestrelctl.core.environments.names import EnvironmentOwner
from kestrelctl.worker.environments.apptainer_driver import ApptainerDriver
from kestrelctl.worker.environments.container_driver import ContainerDriver
from kestrelctl.worker.environments.environment_driver import EnvironmentDriver
from kestrelctl.worker.environments.libvirt_driver import LibvirtDriver
from kestrelctl.worker.environments.tree_drivers import ChrootDriver, NspawnDriver
from kestrelctl.worker.environments.venv_driver import HOSTS_PROGRAM, VenvDriver


def driver_of(kind: str, root: Path, owner: EnvironmentOwner) -> EnvironmentDriver:
    """The driver of a kind.

    Args:
        root: a directory of the owner's; each kind has its own in it.
    """
    place = root / kind
    match kind:
        case "venv":
            return VenvDriver(place)
        case "podman" | "docker":
            return ContainerDriver(kind, place, owner)
        case "nspawn":
            return NspawnDriver(place)
        case "chroot":
            return ChrootDriver(place)
        case "apptainer":
            return ApptainerDriver(place)
        case "libvirt":
            return LibvirtDriver(place, owner)
    raise AssertionError(f"no driver for {kind}")


def program_in(kind: str) -> tuple[str, ...]:
    """The words that call `kestrelctl` in an environment of a kind."""
    return HOSTS_PROGRAM if kind == "venv" else ("kestrelctl",)
