"""A class of environments: what all of them are made of, and how many there may be."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

#: The kinds of environments. Those of the second line have a root tree or an image of their own.
KINDS = (
    *("venv",),
    *("podman", "docker", "nspawn", "chroot", "apptainer", "libvirt"),
)

#: The kinds in which the files of the host are where they are on the host.
SEES_HOSTS_FILES = ("venv",)


@dataclass(frozen=True, kw_only=True)
class EnvironmentResources:
    """The resources of one environment; 0 for what its host has.

    Attributes:
        cpus: processors.
        memory_bytes: of main memory.
        disk_bytes: of the disk; no class sets this.
    """

    cpus: float = 0.0
    memory_bytes: int = 0
    disk_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class EnvironmentClass:
    """Environments that are all alike.

    Attributes:
        kind: one of `KINDS`.
        image: what is there already: for podman, docker and apptainer the name of an image, for
            nspawn and chroot a directory with a root tree, for libvirt a disk. Empty if there is a
            recipe.
        recipe: the file from which it is made: for venv a requirements file, for podman and docker
            a Containerfile, for apptainer a definition, for nspawn and chroot a program that is
            given the directory to fill. Empty if there is an image.
        tags: what its worker provides.
        minimum, maximum: how many there are in a pool.
        start_seconds: how long one may take until its worker has joined.
        idle_seconds: how long one stays without work.
        hosts: an expression about the workers that may make some; empty for all.
        runs: what is started in it instead of a worker of this pool, as words: it is a node of
            something else, of which the pool knows no more than whether it runs. Empty for a
            worker.
    """

    name: str
    kind: str
    image: str = ""
    recipe: str = ""
    tags: tuple[str, ...] = ()
    resources: EnvironmentResources = field(default_factory=EnvironmentResources)
    minimum: int = 0
    maximum: int = 1
    start_seconds: float = 60.0
    idle_seconds: float = 300.0
    hosts: str = ""
    runs: tuple[str, ...] = ()


def recipe_digest(wanted: EnvironmentClass, recipe: bytes, made_with: str = "") -> str:
    """The digest that tells a prepared environment from those of other recipes, not by its name.

    Args:
        recipe: what is in the file that the class names; empty if it names none.
        made_with: what else counts, such as the version of Python.
    """
    digest = hashlib.sha256()
    for part in (wanted.kind.encode(), wanted.image.encode(), made_with.encode(), recipe):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]
