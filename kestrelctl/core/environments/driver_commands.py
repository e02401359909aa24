"""The command lines of the programs that make, start and stop environments."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.environments.names import EnvironmentOwner
from kestrelctl.core.environments.worker_command import INSIDE

LABEL = "kestrel.environments"
DEFAULT_MEMORY_BYTES = 2 << 30
"""The memory of a virtual machine, which cannot have all that its host has."""

# ---- venv


def venv_preparation(
    directory: str, requirements: str, *, python: str, uv: str = ""
) -> list[tuple[str, ...]]:
    """The commands that make a virtual environment and fill it.

    Args:
        requirements: a file; empty for none.
        python: the one whose version it has.
        uv: the program, if it is there: it does the same faster.
    """
    inside = f"{directory}/bin/python"
    steps: list[tuple[str, ...]]
    fill: tuple[str, ...]
    if uv:
        steps = [(uv, "venv", "--quiet", "--no-project", "--python", python, directory)]
        fill = (uv, "pip", "install", "--quiet", "--python", inside)
    else:
        bare = () if requirements else ("--without-pip",)
        steps = [(python, "-m", "venv", *bare, directory)]
        fill = (inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    return [*steps, (*fill, "-r", requirements)] if requirements else steps


# ---- podman and docker: the same words


def image_build(engine: str, tag: str, recipe: str, context: str) -> tuple[str, ...]:
    """Makes an image after a Containerfile."""
    return (engine, "build", "--quiet", "--tag", tag, "--file", recipe, context)


def image_check(engine: str, image: str) -> tuple[str, ...]:
    """Fails if the image is not there."""
    return (engine, "image", "inspect", "--format", "{{.Id}}", image)


def image_pull(engine: str, image: str) -> tuple[str, ...]:
    """Brings the image from where its name says."""
    return (engine, "pull", "--quiet", image)


def image_remove(engine: str, image: str) -> tuple[str, ...]:
    """Removes the image; fails if a container uses it."""
    return (engine, "rmi", image)


def container_start(
    engine: str,
    wanted: EnvironmentClass,
    image: str,
    owner: EnvironmentOwner,
    name: str,
    own: str,
    command: Sequence[str],
) -> tuple[str, ...]:
    """Starts a container that goes on by itself, with the network of its host.

    Args:
        own: the environment's own directory on the host.
    """
    words = [engine, "run", "--detach", "--name", name, "--hostname", name]
    words += ["--network", "host", "--label", f"{LABEL}={owner.prefix}"]
    words += ["--label", f"kestrel.pool={owner.pool}", "--label", f"kestrel.worker={owner.worker}"]
    if wanted.resources.cpus:
        words += ["--cpus", f"{wanted.resources.cpus:g}"]
    if wanted.resources.memory_bytes:
        words += ["--memory", str(wanted.resources.memory_bytes)]
    words += ["--env", f"HOME={INSIDE}", "--volume", f"{own}:{INSIDE}"]
    return (*words, "--entrypoint", "", image, *command)


def container_list(engine: str, owner: EnvironmentOwner) -> tuple[str, ...]:
    """Prints the name of each container of an owner, ended ones too, and `Up …` if it runs."""
    words = ("--filter", f"label={LABEL}={owner.prefix}", "--format", "{{.Names}} {{.Status}}")
    return (engine, "ps", "--all", *words)


def container_stop(engine: str, name: str, grace_seconds: int) -> tuple[str, ...]:
    """Asks a container to end, and kills it when the time is over."""
    return (engine, "stop", "--time", str(grace_seconds), name)


def container_remove(engine: str, name: str) -> tuple[str, ...]:
    """Removes what is left of a container, and ends it before if it runs."""
    return (engine, "rm", "--force", "--volumes", name)


# ---- a root tree: nspawn, and bubblewrap


def nspawn_start(root: str, name: str, own: str, command: Sequence[str]) -> tuple[str, ...]:
    """Runs a command in a tree that is not written to, with the network of its host.

    Several share one tree, so each has in memory what it writes outside its own directory.
    """
    words = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--as-pid2"]
    words += [f"--machine={name}", f"--directory={root}", "--read-only", "--console=pipe"]
    words += ["--kill-signal=SIGRTMIN+3", "--link-journal=no", "--tmpfs=/var/tmp"]
    words += [f"--bind={own}:{INSIDE}", f"--setenv=HOME={INSIDE}"]
    return (*words, "--", *command)


def chroot_start(
    root: str, own: str, command: Sequence[str], *, resolver: bool = True
) -> tuple[str, ...]:
    """Runs a command in a tree that is not written to, by bubblewrap, with its host's network.

    It ends with the process that has started it.

    Args:
        resolver: whether the tree has a file /etc/resolv.conf, over which the host's is laid.
    """
    words = ["bwrap", "--ro-bind", root, "/", "--dev", "/dev", "--proc", "/proc"]
    words += ["--perms", "1777", "--tmpfs", "/tmp", "--tmpfs", "/run", "--bind", own, INSIDE]
    if resolver:
        words += ["--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf"]
    words += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
    words += ["--new-session", "--clearenv", "--setenv", "HOME", INSIDE]
    words += ["--setenv", "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    return (*words, "--chdir", INSIDE, "--", *command)


# ---- apptainer


def apptainer_build(image_file: str, recipe: str) -> tuple[str, ...]:
    """Makes an image after a definition, or from an image of another place."""
    return ("apptainer", "--silent", "build", image_file, recipe)


def apptainer_start(
    wanted: EnvironmentClass, image: str, own: str, command: Sequence[str]
) -> tuple[str, ...]:
    """Runs a command in an image that is not written to, with the network of its host."""
    words = [
        "apptainer",
        "--silent",
        "exec",
        "--containall",
        "--pid",
        "--no-home",
        "--writable-tmpfs",
    ]
    if wanted.resources.cpus:
        words += ["--cpus", f"{wanted.resources.cpus:g}"]
    if wanted.resources.memory_bytes:
        words += ["--memory", str(wanted.resources.memory_bytes)]
    words += ["--bind", f"{own}:{INSIDE}", "--env", f"HOME={INSIDE}"]
    return (*words, image, *command)


# ---- libvirt


def disk_overlay(image: str, disk: str) -> tuple[str, ...]:
    """Makes a disk that holds only what differs from an image."""
    return ("qemu-img", "create", "-q", "-f", "qcow2", "-b", image, "-F", "qcow2", disk)


def domain_start(uri: str, definition: str) -> tuple[str, ...]:
    """Starts a machine of which libvirt knows nothing any more once it has ended."""
    return ("virsh", "--quiet", "--connect", uri, "create", "--file", definition)


def domain_list(uri: str) -> tuple[str, ...]:
    """Prints the name of each machine, of all owners."""
    return ("virsh", "--quiet", "--connect", uri, "list", "--all", "--name")


def domain_shutdown(uri: str, name: str) -> tuple[str, ...]:
    """Asks a machine to end."""
    return ("virsh", "--quiet", "--connect", uri, "shutdown", "--domain", name)


def domain_destroy(uri: str, name: str) -> tuple[str, ...]:
    """Ends a machine at once."""
    return ("virsh", "--quiet", "--connect", uri, "destroy", "--domain", name)


def domain_definition(
    wanted: EnvironmentClass,
    name: str,
    disk: str,
    command: Sequence[str],
    token: str,
    *,
    hypervisor: str = "kvm",
) -> str:
    """The definition of a machine, as libvirt wants it.

    Its worker's command and token are handed to it as credentials of systemd (systemd.exec(5)), in
    the strings that a machine finds in its SMBIOS: no network and no further disk is needed.

    Args:
        disk: its own, which is removed with it.
        hypervisor: the type of the domain.
    """
    cpus = max(1, math.ceil(wanted.resources.cpus))
    memory = wanted.resources.memory_bytes or DEFAULT_MEMORY_BYTES
    credentials = {"kestrel.worker": shlex.join(command), "kestrel.token": token}
    entries = "".join(
        f"<entry>{escape(f'io.systemd.credential:{key}={value}')}</entry>"
        for key, value in credentials.items()
        if value
    )
    return f"""<domain type={quoteattr(hypervisor)}>
  <name>{escape(name)}</name>
  <memory unit='b'>{memory}</memory>
  <vcpu>{cpus}</vcpu>
  <sysinfo type='smbios'><oemStrings>{entries}</oemStrings></sysinfo>
  <os><type>hvm</type><smbios mode='sysinfo'/></os>
  <on_reboot>destroy</on_reboot>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/>
      <source file={quoteattr(disk)}/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <interface type='network'><source network='default'/><model type='virtio'/></interface>
    <console type='pty'/>
  </devices>
</domain>
"""
