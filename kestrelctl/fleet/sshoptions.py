"""The options of an `ssh` command line that an inventory gives, as lines of ssh_config(5)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

#: Options that Fabric and Paramiko can follow.
_FOLLOWED = {
    name.lower(): name
    for name in (
        "ConnectTimeout",
        "GlobalKnownHostsFile",
        "HostName",
        "IdentitiesOnly",
        "IdentityFile",
        "Port",
        "ProxyCommand",
        "ProxyJump",
        "User",
        "UserKnownHostsFile",
    )
}
#: Options that change nothing here: one connection, commands only, host keys verified in any case.
_HARMLESS = {
    "batchmode",
    "compression",
    "controlmaster",
    "controlpath",
    "controlpersist",
    "forwardagent",
    "gssapiauthentication",
    "hostkeyalgorithms",
    "kbdinteractiveauthentication",
    "loglevel",
    "numberofpasswordprompts",
    "passwordauthentication",
    "preferredauthentications",
    "pubkeyauthentication",
    "requesttty",
    "serveralivecountmax",
    "serveraliveinterval",
    "stricthostkeychecking",
    "tcpkeepalive",
}
_LETTERS = {"i": "IdentityFile", "J": "ProxyJump", "l": "User", "p": "Port"}
_HARMLESS_FLAGS = set("46ACTanqtvx")


@dataclass(frozen=True, slots=True)
class SshOptions:
    """The options that were read from a string.

    Attributes:
        lines: `Name value`, in the order in which they were given.
        ignored: options that are not followed, as they were written.
    """

    lines: tuple[str, ...]
    ignored: tuple[str, ...]


def parse_ssh_options(text: str) -> SshOptions:
    """Reads options such as `-o UserKnownHostsFile=hosts -J bastion` (ssh(1)).

    Host keys are always verified, whatever `StrictHostKeyChecking` says.
    """
    lines: list[str] = []
    ignored: list[str] = []
    for written, name, value in _options(text):
        key = name.lower()
        if key in _FOLLOWED:
            lines.append(f"{_FOLLOWED[key]} {value}")
        elif key not in _HARMLESS:
            ignored.append(written)
    return SshOptions(tuple(lines), tuple(ignored))


def _options(text: str) -> Iterator[tuple[str, str, str]]:
    """(as it was written, name in ssh_config, value) of each option."""
    try:
        words = iter(shlex.split(text))
    except ValueError:
        yield text, "", ""
        return
    for word in words:
        letter = word[1:2] if word.startswith("-") else ""
        if letter in _HARMLESS_FLAGS and set(word[1:]) <= _HARMLESS_FLAGS:
            continue
        if letter != "o" and letter not in _LETTERS:
            yield word, "", ""
            continue
        value = word[2:] or next(words, "")
        written = f"-{letter} {value}"
        if letter == "o":
            name, _, value = value.replace("=", " ", 1).strip().partition(" ")
            yield written, name, value.strip()
        else:
            yield written, _LETTERS[letter], value
