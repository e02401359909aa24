#!/usr/bin/python
"""Ansible module: fail when another program listens on ports that a service needs."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: free_ports
short_description: Make sure that nobody but one service listens on some TCP ports
description:
  - Fails and names the program when another one listens there. Changes nothing.
options:
  ports:
    description: The ports.
    type: list
    elements: int
    required: true
  unit:
    description: The systemd unit that may listen there.
    type: str
    required: true
author: Kestrel
"""

EXAMPLES = """
- name: Look for other programs on Prosody's ports
  free_ports:
    ports: [5222, 5347]
    unit: prosody.service
"""

_LISTENING = "0A"


@dataclass(frozen=True, order=True)
class Listener:
    """A listening socket: its port, inode, and the numeric user it belongs to."""

    port: int
    inode: int
    user: int


def listeners(table: str) -> Iterator[Listener]:
    """Yield the listening sockets of a /proc/net/tcp (proc(5))."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTENING:
            port = int(fields[1].rpartition(":")[2], 16)
            yield Listener(port, int(fields[9]), int(fields[7]))


def holders(inodes: set[int]) -> dict[int, int]:
    """Return inode -> pid, of the processes that hold these sockets and can be looked into.

    In a container, root may not look into other users' processes.
    """
    found: dict[int, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        for inode in _sockets(process) & inodes:
            found[inode] = int(process.name)
    return found


def belongs_to(process: int, own: int) -> bool:
    """Tell whether a process is the service's own, or was started by it.

    That of a service may be a shell, whose child listens.
    """
    while process > 1 and process != own:
        try:
            status = Path(f"/proc/{process}/stat").read_text()
        except OSError:  # it has just ended
            return False
        process = int(status.rpartition(")")[2].split()[1])
    return process == own


def _sockets(process: Path) -> set[int]:
    found = set()
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                link = os.readlink(descriptor)
                if link.startswith("socket:["):
                    found.add(int(link[len("socket:[") : -1]))
    return found


def foreign(
    found: Iterable[Listener], held: dict[int, int], own: int, own_user: int | None
) -> list[tuple[int, int | None, int]]:
    """Return port, pid if known and user of each listener that is not the service's.

    Args:
        found: all listeners on the ports.
        held: what `holders` returned.
        own: the service's process, 0 if it does not run.
        own_user: the user of that process.
    """
    return sorted(
        {
            (listener.port, held.get(listener.inode), listener.user)
            for listener in found
            if (held[listener.inode] != own if listener.inode in held
                else listener.user != own_user)
        },
        key=lambda taken: (taken[0], taken[1] or 0, taken[2]),
    )  # fmt: skip


def complaint(taken: Iterable[tuple[int, int | None, int]]) -> str:
    """Return the sentence that tells who has which port."""
    told = [
        f"port {port} is taken by {_program(pid)} (process {pid})"
        if pid is not None
        else f"port {port} is taken by a program of the user {_user(user)}"
        for port, pid, user in taken
    ]
    return "; ".join(told) + ". Stop that program, or give the pool another port."


def _program(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "a program that has just ended"
    return repr(" ".join(word.decode(errors="replace") for word in words if word)[:80])


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "ports": {"type": "list", "elements": "int", "required": True},
            "unit": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    wanted = set(module.params["ports"])
    found = [
        listener
        for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
        if table.exists()
        for listener in listeners(table.read_text())
        if listener.port in wanted
    ]
    command = ["systemctl", "show", "--property=MainPID", "--value", module.params["unit"]]
    _, output, _ = module.run_command(command)
    own = int(output.strip() or 0)
    own_user = Path(f"/proc/{own}").stat().st_uid if own else None
    held = {
        inode: own if belongs_to(process, own) else process
        for inode, process in holders({listener.inode for listener in found}).items()
    }
    taken = foreign(found, held, own, own_user)
    if taken:
        module.fail_json(msg=complaint(taken))
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
