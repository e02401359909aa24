"""One host of an inventory, and the way to it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Host:
    """A host and what SSH needs to reach it.

    Attributes:
        name: in the inventory.
        address: a name or IP address, or a `Host` of the user's SSH configuration.
        user: to log in as; empty for what the SSH configuration says.
        port: None for what the SSH configuration says.
        key_files: private keys to try first.
        ssh_config: lines in the syntax of ssh_config(5) that come before the user's own.
        ignored: SSH options of the inventory that are not followed, as they were written.
        local: it is this machine; commands run without SSH.
        become: the inventory wants its commands to run as root.
    """

    name: str
    address: str
    user: str = ""
    port: int | None = None
    key_files: tuple[str, ...] = ()
    ssh_config: tuple[str, ...] = ()
    ignored: tuple[str, ...] = field(default=())
    local: bool = False
    become: bool = False

    def __str__(self) -> str:
        return self.name
