"""Lists the hosts of an inventory: Ansible itself reads the inventory and its configuration."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kestrelctl.errors import UsageError
from kestrelctl.fleet.host import Host
from kestrelctl.fleet.sshoptions import parse_ssh_options
from kestrelctl.grammar.quantities import parse_digits
from kestrelctl.missing_package import missing_package

_TIMEOUT_SECONDS = 120
#: Variables of Ansible's ssh connection (ansible-doc -t connection ssh), by what they set; of
#: several, the first that is set counts.
_VARIABLES = {
    "connection": ("ansible_connection",),
    "address": ("ansible_ssh_host", "ansible_host"),
    "port": ("ansible_ssh_port", "ansible_port"),
    "remote_user": ("ansible_ssh_user", "ansible_user"),
    "private_key_file": ("ansible_ssh_private_key_file", "ansible_private_key_file"),
    "ssh_args": ("ansible_ssh_args",),
    "ssh_common_args": ("ansible_ssh_common_args",),
    "ssh_extra_args": ("ansible_ssh_extra_args",),
    "become": ("ansible_become",),
}
_ARGS = ("ssh_args", "ssh_common_args", "ssh_extra_args")
_TRUE = {"true", "yes", "on", "1"}


def read_inventory(inventory: Path | None, limit: str | None) -> list[Host]:
    """The hosts of an inventory, by name.

    Args:
        inventory: its file or directory; None for the one that Ansible would use here.
        limit: a pattern of hosts and groups as for `ansible --limit`; None for all.

    Raises:
        MissingTool: Ansible is not installed.
        UsageError: the inventory cannot be read, or has no such hosts.
    """
    which = ["-i", str(inventory)] if inventory is not None else []
    some = ["--limit", limit] if limit is not None else []
    if inventory is not None and not inventory.exists():
        raise UsageError(f"there is no inventory {str(inventory)!r}")
    with ThreadPoolExecutor(2) as pool:
        listed = pool.submit(_ask, "ansible-inventory", *which, "--list", *some)
        changed = pool.submit(
            _ask, "ansible-config", "dump", "--only-changed", "--format", "json",
            "-t", "connection", "ssh",
        )  # fmt: skip
        told, warnings = listed.result()
        configuration = _configuration(changed.result()[0])
    groups: dict[str, dict[str, Any]] = _json(told)
    known: dict[str, dict[str, Any]] = groups["_meta"]["hostvars"]
    # A host without a variable is in its group alone.
    names = known.keys() | {name for group in groups.values() for name in group.get("hosts", ())}
    hostvars = {name: known.get(name, {}) for name in sorted(names)}
    if not hostvars:
        raise UsageError(
            f"no host of the inventory matches {limit!r}" if limit else "the inventory is empty",
            cause=warnings or None,
            hint="-i INVENTORY, or run it where ansible.cfg is" if inventory is None else None,
        )
    templated = [name for name, variables in hostvars.items() if _needs_ansible(variables)]
    if templated:
        hostvars |= _evaluated(which, templated)
    return [host_of(name, variables, configuration) for name, variables in hostvars.items()]


def host_of(name: str, variables: Mapping[str, Any], configuration: Mapping[str, str]) -> Host:
    """A host from its variables.

    Args:
        configuration: options of Ansible's ssh connection from ansible.cfg or the environment.
    """
    found = {key: _first(variables, names) for key, names in _VARIABLES.items()}
    found = {key: configuration.get(key, "") if v is None else str(v) for key, v in found.items()}
    options = parse_ssh_options(" ".join(found[key] for key in _ARGS if found[key]))
    key_file = found["private_key_file"]
    return Host(
        name=name,
        address=found["address"] or name,
        user=found["remote_user"],
        port=_port(name, found["port"]),
        key_files=(str(Path(key_file).expanduser()),) if key_file else (),
        ssh_config=options.lines,
        ignored=options.ignored,
        local=found["connection"] in ("local", "ansible.builtin.local"),
        become=found["become"].lower() in _TRUE,
    )


def _port(host: str, text: str) -> int | None:
    """The port of a host; None if the inventory says none.

    Raises:
        UsageError: it is none.
    """
    if not text:
        return None
    port = parse_digits(text, 65535)
    if not port:
        raise UsageError(
            f"the port of {host} is {text[:40]!r}",
            cause="a port is a number from 1 to 65535",
            hint="mend `ansible_port` in the inventory",
        )
    return port


def _first(variables: Mapping[str, Any], names: Sequence[str]) -> Any:
    values = (variables.get(name) for name in names)
    return next((v for v in values if v is not None and not isinstance(v, dict)), None)


def _needs_ansible(variables: Mapping[str, Any]) -> bool:
    values = (variables.get(name) for names in _VARIABLES.values() for name in names)
    return any("{{" in str(value) or "{%" in str(value) for value in values)


def _evaluated(which: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The variables of hosts whose values are templates, as Ansible evaluates them."""
    wanted = [name for group in _VARIABLES.values() for name in group]
    pairs = ", ".join(f"'{name}': {name} | default(none)" for name in wanted)
    told, _ = _ask(
        "ansible", *which, ",".join(names),
        "-m", "ansible.builtin.debug", "-a", f"msg={{{{ {{{pairs}}} }}}}",
    )  # fmt: skip
    answers = re.findall(r"^(\S+) \| SUCCESS => (\{.*?^\})", told, re.MULTILINE | re.DOTALL)
    found = {name: _json(answer)["msg"] for name, answer in answers}
    unknown = [name for name in names if name not in found]
    if unknown:
        raise UsageError(
            f"the variables of {', '.join(unknown)} cannot be worked out",
            cause=told.strip() or None,
            hint=f"ansible-inventory {' '.join(which)} --host {unknown[0]}",
        )
    return found


def _configuration(told: str) -> dict[str, str]:
    settings = (each for group in _json(told) for each in group.get("ssh", ()))
    return {each["name"]: str(each["value"]) for each in settings if each["value"] is not None}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError("Ansible's answer is not JSON", cause=str(error)) from None


def _ask(program: str, *args: str) -> tuple[str, str]:
    """Runs a program of Ansible; returns its standard output and its standard error."""
    beside = Path(sys.executable).parent / program
    path = shutil.which(program) or (str(beside) if beside.exists() else None)
    if path is None:
        raise missing_package(
            f"{program} is not installed",
            "ansible-core",
            "fabric",
            cause="the inventory is read by Ansible itself",
        )
    environment = {
        **os.environ,
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOAD_CALLBACK_PLUGINS": "0",
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",  # whatever an ansible.cfg says
    }
    try:
        done = subprocess.run(
            [path, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_TIMEOUT_SECONDS, env=environment, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UsageError(f"{program} takes longer than {_TIMEOUT_SECONDS} s") from None
    warnings = " ".join(done.stderr.replace("[WARNING]: ", "").split())
    if done.returncode:
        raise UsageError(f"{program} cannot read the inventory", cause=warnings)
    return done.stdout, warnings
