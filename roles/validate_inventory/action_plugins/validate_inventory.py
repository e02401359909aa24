"""Find every mistake in an inventory that can be found without talking to a host.

Runs on the controller alone. It looks at all hosts, whatever `--limit` says: a pool is judged as a
whole. The names of variables, and what may be in them, come from the argument specifications of
all roles beside this one.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase

#: What a host has in the inventory: variable -> value, templated when it is read.
Variables = Mapping[str, Any]

POOL_PREFIX = "kestrel_"
_LOCAL_PART = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62})")
_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})+")
_PIN = re.compile(r"[0-9a-f]{2}(:?[0-9a-f]{2}){31}", re.IGNORECASE)
#: In a connection string of PostgreSQL, be it an address or words.
_PASSWORD_OF_STORE = re.compile(r"://[^/?#@]*:[^/?#@]+@|\bpassword\s*=", re.IGNORECASE)
_MAX_DOMAIN_CHARACTERS = 200  # leaves room for `workers.` and for a host's name before it
_GROUPS = ("xmpp_servers", "managers", "workers", "monitoring")
_USER_KEYS = {"name", "admin"}
_NAMES_SHOWN = 3
#: What a pool with an ejabberd goes without: beginnings of variables, and what they are for.
_NOT_WITH_EJABBERD = {
    "xmpp_server_account_admins": "accounts that the pool makes and deletes itself",
    "manager_environment": "accounts that the pool makes for environments",
    "kestrel_flock_": "a flock",
    "xmpp_server_flock": "a flock",
    "xmpp_server_federat": "other servers",
    "xmpp_server_neighbour_": "other servers",
    "xmpp_server_websocket_": "chat clients in browsers",
    "xmpp_server_client_kilobytes_per_second": "a bounded rate for each account",
    "xmpp_server_share_account_": "a share for each account of what files take",
    "xmpp_server_share_max_bytes": "a bound of what all files take",
    "xmpp_server_metrics_": "metrics of the server",
    "xmpp_server_component_port": "a port for managers without TLS",
    "xmpp_server_backlog": "a queue of connections",
    "xmpp_server_keepalive_seconds": "probes of silent connections",
    "xmpp_server_log_level": "another level of its log",
}


def read_specifications(roles: Path) -> dict[str, dict[str, Any]]:
    """Return variable -> option, of all argument specifications under `roles`."""
    options: dict[str, dict[str, Any]] = {}
    for file in sorted(roles.glob("*/meta/argument_specs.yml")):
        document = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        for entry in document.get("argument_specs", {}).values():
            options.update(entry.get("options") or {})
    return options


def group_problems(groups: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield what is wrong with the sizes of the groups."""
    meant = {name: _misspelt(name, groups) for name in _GROUPS}
    if not groups.get("xmpp_servers"):
        yield (
            f"the group xmpp_servers must have exactly one host; it has none{meant['xmpp_servers']}"
        )
    managers = groups.get("managers", [])
    if not managers:
        yield f"the group managers must have exactly one host; it has none{meant['managers']}"
    if not groups.get("workers"):
        yield f"the group workers must have at least one host; it has none{meant['workers']}"
    if meant["monitoring"]:
        yield f"the group monitoring has no host{meant['monitoring']}"


def flavor_problems(
    groups: Mapping[str, list[str]], hosts: Mapping[str, Variables]
) -> Iterator[str]:
    """Yield what is asked for that the server of the pool, if it is an ejabberd, cannot carry."""
    servers = groups.get("xmpp_servers", [])
    try:
        flavors = {str(hosts[name].get("xmpp_server_flavor", "prosody")) for name in servers}
    except AnsibleError as error:
        yield f"xmpp_server_flavor cannot be worked out: {error}"
        return
    if len(servers) > 1:
        yield from _node_problems(servers, hosts, flavors)
    if "ejabberd" not in flavors:
        return
    managers = groups.get("managers", [])
    if len(managers) > 1:
        yield (
            f"the group managers must have exactly one host; it has {_listed(managers)}: an"
            " ejabberd gives each message to one of several managers, by chance"
            " (xmpp_server_flavor: prosody carries managers that stand by)"
        )
    asked: dict[str, str] = {}
    for variables in hosts.values():
        for variable in variables:
            what = _missing_with_ejabberd(variable)
            if what is not None and _is_set(variables, variable):
                asked.setdefault(variable, what)
    for variable, what in sorted(asked.items()):
        yield (
            f"{variable} asks for {what}, which a pool with an ejabberd does without: leave it"
            " out, or have the server be a Prosody (xmpp_server_flavor: prosody)"
        )


def _node_problems(
    servers: list[str], hosts: Mapping[str, Variables], flavors: set[str]
) -> Iterator[str]:
    """Yield what is wrong with several servers, which are nodes of one ejabberd."""
    if flavors != {"ejabberd"}:
        yield (
            f"the group xmpp_servers must have exactly one host; it has {_listed(servers)}: several"
            " are nodes of one ejabberd (xmpp_server_flavor: ejabberd, on all of them)"
        )
        return
    if not any(variables.get("kestrel_server_address") for variables in hosts.values()):
        yield (
            f"kestrel_server_address is not set, and the group xmpp_servers has {_listed(servers)}:"
            " it is a name that leads to all of them, such as one with several addresses in DNS"
        )
    for name in servers:
        variables = hosts[name]
        address = str(
            variables.get("xmpp_server_node_address") or variables.get("ansible_host") or name
        )
        if not _is_address(address) or ":" in address:
            yield (
                f"{name} has no address at which other nodes reach it: {address!r} is none of IPv4"
                " (xmpp_server_node_address: 192.0.2.11)"
            )


def _missing_with_ejabberd(variable: str) -> str | None:
    return next(
        (what for start, what in _NOT_WITH_EJABBERD.items() if variable.startswith(start)), None
    )


def _is_set(variables: Variables, variable: str) -> bool:
    try:
        return bool(variables[variable])
    except (AnsibleError, KeyError):
        return True  # needs something that is known only later


def store_problems(
    groups: Mapping[str, list[str]], hosts: Mapping[str, Variables]
) -> Iterator[str]:
    """Yield what is wrong with the store of the managers."""
    managers = groups.get("managers", [])
    try:
        stores = [str(hosts[name].get("kestrel_postgresql") or "") for name in managers]
    except AnsibleError as error:
        yield f"kestrel_postgresql cannot be worked out: {error}"
        return
    if any(map(_PASSWORD_OF_STORE.search, stores)):
        yield (
            "kestrel_postgresql has a password in it, which everybody on a manager's host could"
            " read: leave it out, and encrypt it as vault_kestrel_postgresql_password"
        )
    if len(managers) < 2:
        return
    if not any(stores):
        yield (
            f"the group managers must have exactly one host; it has {_listed(managers)}:"
            " several managers need a store that they share, a PostgreSQL that"
            " kestrel_postgresql names (postgresql://kestrel@db.example.org/kestrel)"
        )
    elif len(set(stores)) > 1:
        yield (
            f"kestrel_postgresql is not the same on {_listed(managers)}, which share one store:"
            " set it once, in group_vars/all/pool.yml"
        )


def certificate_problems(
    groups: Mapping[str, list[str]], hosts: Mapping[str, Variables]
) -> Iterator[str]:
    """Yield what is missing of a certificate that somebody brings."""
    pair = ("xmpp_server_certificate_file", "xmpp_server_certificate_key_file")
    for name in groups.get("xmpp_servers", []):
        missing = [variable for variable in pair if not hosts[name].get(variable)]
        if len(missing) == 1:
            yield (
                f"{missing[0]} is not set (of {name}), and the other of {' and '.join(pair)} is:"
                " a certificate of your own needs both, and kestrel_ca_certificate"
            )


def worker_name_problems(workers: Iterable[str]) -> Iterator[str]:
    """Yield the workers whose name cannot be the local part of an account's address."""
    for name in workers:
        if not _LOCAL_PART.fullmatch(name):
            yield (
                f"the worker {name!r} cannot have an account of that name: a name has at most 63"
                " characters out of a-z, 0-9, '.', '_' and '-' and begins with a letter or digit"
                " (give the host another name and its address in ansible_host)"
            )


def domain_problems(domain: object) -> Iterator[str]:
    """Yield what is wrong with `kestrel_domain`."""
    if domain is None:
        yield "kestrel_domain is not set (for example: kestrel_domain: pool.internal)"
    elif (
        not isinstance(domain, str)
        or not _DOMAIN.fullmatch(domain)
        or len(domain) > _MAX_DOMAIN_CHARACTERS
    ):
        yield (
            f"kestrel_domain is {domain!r}, which is no domain name: lower-case labels out of a-z,"
            " 0-9 and '-', at least two, joined by dots (for example: pool.internal)"
        )


def user_problems(users: object) -> Iterator[str]:
    """Yield what is wrong with `kestrel_users`."""
    if not isinstance(users, list) or not users:
        yield "kestrel_users must be a list with at least one user ([{name: ada, admin: true}])"
        return
    seen: set[str] = set()
    for user in users:
        if not isinstance(user, Mapping) or "name" not in user:
            yield f"kestrel_users: {user!r} is no user; write {{name: ada}} or more"
            continue
        name = user["name"]
        if not isinstance(name, str) or not _LOCAL_PART.fullmatch(name):
            yield (
                f"kestrel_users: {name!r} cannot be a user's name: at most 63 characters out of"
                " a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
            )
            continue
        if name in seen:
            yield f"kestrel_users: {name} is there twice"
        seen.add(name)
        for key in sorted(set(user) - _USER_KEYS):
            yield f"kestrel_users: {name} has an unknown key {key!r}{_suggestion(key, _USER_KEYS)}"
        if not isinstance(user.get("admin", False), bool):
            yield f"kestrel_users: admin of {name} must be true or false"
    if not any(isinstance(user, Mapping) and user.get("admin") is True for user in users):
        yield "kestrel_users: nobody is admin; at least one user needs `admin: true`"


def monitoring_problems(
    groups: Mapping[str, list[str]], hosts: Mapping[str, Variables]
) -> Iterator[str]:
    """Yield what is wrong with the addresses from which metrics are read.

    Metrics are served to addresses: whom a name leads to may change without anybody's noticing.
    """
    watching = groups.get("monitoring", [])
    watched = {
        name for group in ("xmpp_servers", "managers", "workers") for name in groups.get(group, [])
    }
    for host in watching:
        given = hosts[host].get("kestrel_monitoring_addresses")
        if given is not None:
            for address in given if isinstance(given, list) else []:
                if not _is_address(address):
                    yield f"kestrel_monitoring_addresses: {address!r} is no address"
        elif watched - {host} and not _is_address(hosts[host].get("ansible_host")):
            yield (
                f"{host} of monitoring reads metrics from an address that nobody knows:"
                " give the host an address in ansible_host, or name all of monitoring's in"
                " kestrel_monitoring_addresses ([192.0.2.31])"
            )


def flock_problems(variables: Variables) -> Iterator[str]:
    """Yield what is wrong with the flock that a pool is to join."""
    join, own = variables.get("kestrel_flock_join"), variables.get("kestrel_domain")
    pins = variables.get("kestrel_flock_pins") or {}
    addresses = variables.get("kestrel_flock_addresses") or {}
    if not isinstance(pins, Mapping) or not isinstance(addresses, Mapping):
        return  # told as values of the wrong kind
    for variable, names in (
        ("kestrel_flock_join", [join] if join else []),
        ("kestrel_flock_pins", pins),
        ("kestrel_flock_addresses", addresses),
    ):
        for name in names:
            if not _DOMAIN.fullmatch(str(name)):
                yield f"{variable}: {name!r} is no domain of a pool"
    for domain, pin in pins.items():
        if not _PIN.fullmatch(str(pin)):
            yield (
                f"kestrel_flock_pins: what {domain} has is no SHA-256 in hex"
                " (openssl x509 -in FILE -noout -fingerprint -sha256)"
            )
    for domain, place in addresses.items():
        address, _, port = str(place).rpartition(":")
        if not port.isdecimal() or not _is_address(address.strip("[]")):
            yield (
                f"kestrel_flock_addresses: {place!r} of {domain} is not ADDRESS:PORT"
                " (192.0.2.11:5269)"
            )
    if join and join != own and not pins and not variables.get("kestrel_flock_ca_certificate"):
        yield (
            f"kestrel_flock_join: no server of {join} would be believed: set"
            " kestrel_flock_ca_certificate, or kestrel_flock_pins"
        )


def _is_address(text: object) -> bool:
    try:
        ipaddress.ip_address(str(text))
    except ValueError:
        return False
    return True


def unknown_variable_problems(
    hosts: Mapping[str, Variables], known: Iterable[str], prefixes: Iterable[str]
) -> Iterator[str]:
    """Yield the variables that look like ours but that no role declares."""
    names, starts = set(known), tuple(prefixes)
    found: dict[str, list[str]] = {}
    for host, variables in hosts.items():
        for variable in variables:
            if variable.startswith(starts) and variable not in names:
                found.setdefault(variable, []).append(host)
    for variable, where in sorted(found.items()):
        on = "all hosts" if len(where) == len(hosts) > 1 else _listed(where)
        yield f"no role knows the variable {variable} (of {on}){_suggestion(variable, names)}"


def value_problems(
    hosts: Mapping[str, Variables], specifications: Mapping[str, dict[str, Any]]
) -> Iterator[str]:
    """Yield the values whose type, or choice, is not what the role wants."""
    checked: set[tuple[str, str]] = set()
    for host, variables in hosts.items():
        for variable in variables:
            option = specifications.get(variable)
            if option is None or option.get("no_log"):
                continue
            try:
                value = variables[variable]
            except (AnsibleError, KeyError):
                continue  # needs something that is known only later
            if (variable, repr(value)) in checked:
                continue
            checked.add((variable, repr(value)))
            for message in _refusals(variable, value, option):
                yield f"{variable} (of {host}): {message}"


def find_problems(
    groups: Mapping[str, list[str]],
    hosts: Mapping[str, Variables],
    specifications: Mapping[str, dict[str, Any]],
    role_names: Iterable[str],
) -> list[str]:
    """Return every problem, each in a sentence.

    Args:
        groups: group -> names of its hosts.
        hosts: name -> variables, of all hosts.
        specifications: what `read_specifications` returned.
        role_names: a variable that begins with one of them must be in `specifications`.
    """
    problems = [*group_problems(groups), *worker_name_problems(groups.get("workers", []))]
    problems += _pool_wide(hosts, "kestrel_domain", domain_problems)
    problems += _pool_wide(hosts, "kestrel_users", user_problems)
    problems += flavor_problems(groups, hosts)
    problems += store_problems(groups, hosts)
    problems += monitoring_problems(groups, hosts)
    try:
        problems += certificate_problems(groups, hosts)
    except AnsibleError as error:
        problems.append(f"what is said of the server's certificate cannot be worked out: {error}")
    for variables in hosts.values():
        try:
            problems += flock_problems(variables)
        except AnsibleError as error:
            problems.append(f"what is said of the flock cannot be worked out: {error}")
    prefixes = [POOL_PREFIX, *(f"{name}_" for name in role_names)]
    problems += unknown_variable_problems(hosts, specifications, prefixes)
    problems += value_problems(hosts, specifications)
    return list(dict.fromkeys(problems))


def _pool_wide(
    hosts: Mapping[str, Variables], variable: str, judge: Callable[[object], Iterator[str]]
) -> Iterator[str]:
    """Yield the problems of a variable that must have one value on all hosts."""
    values: dict[str, object] = {}
    for variables in hosts.values():
        try:
            value = variables.get(variable)
        except AnsibleError as error:
            yield f"{variable} cannot be worked out: {error}"
            return
        values.setdefault(repr(value), value)
    if len(values) > 1:
        yield (
            f"{variable} has {len(values)} values, but it belongs to the whole pool:"
            " set it once, in group_vars/all/pool.yml"
        )
    for value in values.values():
        yield from judge(value)


def _refusals(variable: str, value: object, option: dict[str, Any]) -> list[str]:
    plain = {key: option[key] for key in ("type", "elements", "choices") if key in option}
    outcome = ArgumentSpecValidator({variable: plain}).validate({variable: value})
    return list(outcome.error_messages)


def _listed(names: list[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


def _misspelt(name: str, groups: Mapping[str, list[str]]) -> str:
    """Say which group may have been meant by this one, which has no host."""
    others = [group for group in groups if group not in _GROUPS and groups[group]]
    nearest = [] if groups.get(name) else difflib.get_close_matches(name, others, 1, cutoff=0.8)
    return f"; there is a group {nearest[0]}: did you mean {name}?" if nearest else ""


def _suggestion(name: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f"; did you mean {nearest[0]}?" if nearest else ""


class ActionModule(ActionBase):
    """Fails with the whole list of problems, or says that there are none."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return a failure whose message lists all problems, if there are any."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        assert task_vars is not None
        roles = Path(self._task._role._role_path).parent
        groups = task_vars["groups"]
        hosts = {name: task_vars["hostvars"][name] for name in groups["all"]}
        problems = find_problems(
            groups,
            hosts,
            read_specifications(roles),
            sorted(file.parent.parent.name for file in roles.glob("*/meta/argument_specs.yml")),
        )
        if problems:
            count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
            result["failed"] = True
            result["msg"] = "\n".join(
                [
                    f"The inventory has {count}; nothing has been touched.",
                    *(f"  {number}. {text}" for number, text in enumerate(problems, 1)),
                ]
            )
        return result
