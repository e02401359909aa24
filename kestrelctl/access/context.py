"""Finds the pool a command talks to: a context of the configuration, or a pool of this machine.

`$XDG_CONFIG_HOME/kestrel/config.toml` (https://specifications.freedesktop.org/basedir-spec) or, for
all users of the machine, `/etc/kestrel/config.toml`:

    default = "lab"
    [context.lab]
    jid = "ada@example.org"
    password_file = "lab.password"      # relative to this file; or keyring = true
    pool = "pool.example.org"
    ca_file = "ca.pem"                  # relative to this file, too

A user's own file takes precedence over the machine's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec

from kestrelctl.errors import Unreachable, UsageError
from kestrelctl.local.pool_state import (
    PoolState,
    known_pools,
    pool_directories,
    pool_directory,
    read_state,
    user_directory,
)

DEFAULT_LOCAL_POOL = "default"
#: The configuration for all users of this machine.
SYSTEM_CONFIG = Path("/etc/kestrel/config.toml")


class Account(msgspec.Struct, frozen=True):
    """An account at the XMPP server.

    Attributes:
        password_file: its first line is the password; None if the system's keyring has that.
    """

    jid: str
    password_file: Path | None


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a pool, and the accounts to talk to it with.

    Attributes:
        pool: its XMPP domain.
        host: the host of the server where the account lives.
        ca_file: certificates (PEM) of the only authorities to trust; None for the system's.
        admin: the account for commands that only admins may use; None if there is only `user`.
        metrics: pages for Prometheus, the manager's first; known for local pools only.
        server_metrics: the page of the XMPP server.
        hint: what to do if it cannot be reached.
        own_directories: whether its workers run tasks in a directory that the job names, on this
            machine.
        directory: that of a local pool; None for others.
    """

    name: str
    pool: str
    host: str
    port: int
    tls: bool
    ca_file: Path | None = None
    user: Account
    admin: Account | None = None
    metrics: list[str] = []
    server_metrics: str = ""
    hint: str
    own_directories: bool = False
    directory: Path | None = None


class _Configured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    jid: str
    password_file: str = ""
    keyring: bool = False
    pool: str
    host: str = ""
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 5222
    tls: bool = True
    ca_file: str = ""
    admin_jid: str = ""
    admin_password_file: str = ""


class _Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    default: str = ""
    context: dict[str, _Configured] = {}


def find_context(wanted: str) -> Context:
    """Finds the pool that is meant, to talk to it.

    It is the first of these: `wanted` (a context or a running local pool of that name, or the only
    one of that domain), `KESTREL_POOL` likewise, the configuration's `default`, its only context,
    the only running local pool or the one called `default`.

    Raises:
        Unreachable: there is none.
        UsageError: there are several, or the configuration is wrong.
    """
    default, configured = _read_configs()
    wanted = wanted or _of_environment() or default
    if not wanted and len(configured) == 1:
        wanted = next(iter(configured))
    if wanted in configured:
        return configured[wanted]
    local = running_pools()
    if wanted:
        if wanted in local:
            return _local(local[wanted])
        of_domain = [each for each in configured.values() if each.pool == wanted]
        of_domain += [_local(each) for each in local.values() if each.domain == wanted]
        if len(of_domain) == 1:
            return of_domain[0]
        if of_domain:
            raise UsageError(
                "which pool?",
                cause=f"of the domain {wanted} are {', '.join(each.name for each in of_domain)}",
                hint="--pool NAME, or KESTREL_POOL",
            )
        from kestrelctl.grammar.nearest import did_you_mean

        known = sorted({*configured, *local})
        raise Unreachable(
            f"no pool {wanted!r} is known or runs here",
            cause=f"known: {', '.join(known)}"
            if known
            else f"nothing is configured in {own_config()} or {SYSTEM_CONFIG}",
            hint=did_you_mean(wanted, known) or _how_to_begin(wanted),
        )
    if configured:
        names = ", ".join(sorted(configured))
        raise UsageError(
            "which pool?",
            cause=f"several are configured: {names}",
            hint=f'--pool NAME, KESTREL_POOL, or default = "NAME" in {own_config()}',
        )
    if len(local) > 1 and DEFAULT_LOCAL_POOL not in local:
        raise UsageError(
            "which pool?",
            cause=f"several run here: {', '.join(sorted(local))}",
            hint="--pool NAME, or KESTREL_POOL",
        )
    if not local:
        raise Unreachable(
            "no pool runs on this machine, and none is configured", hint="kestrelctl up"
        )
    return _local(local.get(DEFAULT_LOCAL_POOL) or next(iter(local.values())))


def _how_to_begin(wanted: str) -> str:
    """The command that makes a pool of that name, or shows those there are if it can have none."""
    try:
        pool_directory(wanted)
    except UsageError:
        return "kestrelctl context list"
    return f"kestrelctl up --name {wanted}"


def named_local_pool(wanted: str) -> str:
    """Returns the name of the local pool that is meant, whether or not it runs or exists.

    It is the first of these: `wanted`, `KESTREL_POOL`, the configuration's `default` unless that is
    a context.

    Returns:
        Its name; empty if none of them names one.

    Raises:
        UsageError: the configuration has a context of that name, so that name means another pool
            to the commands that talk to one; or the configuration is wrong.
    """
    default, configured = _read_configs()
    name = wanted or _of_environment()
    if not name:
        return "" if default in configured else default
    if name in configured:
        raise UsageError(
            f"the pool {name} is not one that `kestrelctl up` started on this machine",
            cause=f"{name} is a context of the configuration",
            hint="`--pool NAME` of `kestrelctl manager`, and `--name NAME` of `kestrelctl up` and "
            "`kestrelctl down`, take the name of a pool of this machine",
        )
    return name


def usual_local_pool() -> str:
    """Returns the local pool that is meant if nothing names one, whether or not it runs.

    Returns:
        `default`, or the only pool that there is if it has another name.

    Raises:
        UsageError: there are several, and none has the name `default`.
    """
    known = known_pools()
    if DEFAULT_LOCAL_POOL in known or not known:
        return DEFAULT_LOCAL_POOL
    if len(known) > 1:
        raise UsageError(
            "which pool?",
            cause=f"there are {', '.join(known)}",
            hint="--pool NAME, or KESTREL_POOL",
        )
    return known[0]


def _of_environment() -> str:
    """The pool that `KESTREL_POOL` names; empty if it names none."""
    return os.environ.get("KESTREL_POOL", "")


def running_pools() -> dict[str, PoolState]:
    """The pools that run on this machine for this user, by name."""
    found = map(read_state, pool_directories())
    return {pool.name: pool for pool in found if pool is not None}


def read_password(account: Account) -> str:
    """Reads the password of an account.

    Raises:
        UsageError: its file cannot be read or is empty, or the keyring has none.
        MissingTool: it is in the keyring, and what reads that is not installed.
    """
    if account.password_file is None:
        from kestrelctl.access.keyring_password import stored_password

        return stored_password(account.jid)
    try:
        password = account.password_file.read_text().partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"the password of {account.jid} cannot be read",
            cause=f"{account.password_file}: {why}",
            hint="it belongs to somebody else: as root, or with sudo, it can be read"
            if isinstance(error, PermissionError)
            else None,
        ) from None
    if not password:
        raise UsageError(
            f"the password of {account.jid} is empty", cause=str(account.password_file)
        )
    return password


def _local(pool: PoolState) -> Context:
    return Context(
        name=pool.name,
        pool=pool.domain,
        host=pool.host,
        port=pool.port,
        tls=False,
        user=Account(pool.user, Path(pool.password_file)),
        admin=Account(pool.admin, Path(pool.admin_password_file)),
        metrics=[pool.metrics, *pool.worker_metrics] if pool.metrics else [],
        server_metrics=pool.server_metrics,
        hint="its supervisor starts again what has ended: try again. If that does not help, "
        f"`kestrelctl down --name {pool.name}; kestrelctl up --name {pool.name}` keeps its jobs",
        own_directories=pool.own_directories,
        directory=pool_directory(pool.name),
    )


def own_config() -> Path:
    """The user's own configuration."""
    return user_directory("XDG_CONFIG_HOME", ".config") / "kestrel" / "config.toml"


def known_contexts() -> list[Context]:
    """The contexts of the configuration, and the pools of this machine that run, by name.

    Raises:
        UsageError: the configuration is wrong.
    """
    configured = _read_configs()[1]
    local = {name: _local(pool) for name, pool in running_pools().items()}
    return [found for _, found in sorted((local | configured).items())]


def read_own_config() -> tuple[str, list[str]]:
    """The default of the user's own configuration, empty for none, and the names of its contexts.

    Raises:
        UsageError: it is wrong.
    """
    config = _read_config(own_config())
    return config.default, list(config.context)


def check_config(text: str, file: Path) -> None:
    """Passes if a text is a configuration.

    Args:
        file: where it is, or will be.

    Raises:
        UsageError: it is none.
    """
    for name, found in _parsed(text, file).context.items():
        _configured(name, found, file)


def _read_configs() -> tuple[str, dict[str, Context]]:
    """Reads the name of the default pool, empty if there is none, and all contexts by name."""
    default = ""
    contexts: dict[str, Context] = {}
    for file in (SYSTEM_CONFIG, own_config()):
        config = _read_config(file)
        default = config.default or default
        for name, found in config.context.items():
            contexts[name] = _configured(name, found, file)
    return default, contexts


def _problem_with(found: _Configured) -> str | None:
    """Says what a context has that cannot be; None if all is well."""
    if bool(found.password_file) == found.keyring:
        return f"{'both' if found.keyring else 'none'} of password_file and keyring = true"
    if bool(found.admin_jid) != bool(found.admin_password_file) and not found.keyring:
        return "only one of admin_jid and admin_password_file"
    from kestrelctl.core.model.names import problem_with_domain  # most have no configuration

    for jid in (found.jid, found.admin_jid or found.jid):
        name, _, domain = jid.partition("/")[0].partition("@")
        if not _is_plain(name) or problem_with_domain(domain.lower()):
            return f"an account that is none: {jid[:80]!r}; it is written ada@example.org"
    if problem_with_domain(found.pool.lower()):
        return f"a domain that is none: {found.pool[:80]!r}"
    if not _is_plain(found.host or found.pool):  # or an address of IPv6
        return f"a name of a server that is none: {found.host[:80]!r}"
    if "\0" in f"{found.password_file}{found.admin_password_file}{found.ca_file}":
        return "a name of a file with a null byte"
    return None


def _is_plain(text: str) -> bool:
    return bool(text) and text.isprintable() and " " not in text


def _configured(name: str, found: _Configured, file: Path) -> Context:
    def path(text: str) -> Path:
        return file.parent / os.path.expanduser(text)

    def account(jid: str, password_file: str) -> Account:
        return Account(jid, path(password_file) if password_file else None)

    problem = _problem_with(found)
    if problem is not None:
        raise UsageError(f"{file} is wrong", cause=f"context.{name} has {problem}")
    return Context(
        name=name,
        pool=found.pool,
        host=found.host or found.jid.partition("/")[0].rpartition("@")[2],
        port=found.port,
        tls=found.tls,
        ca_file=path(found.ca_file) if found.ca_file else None,
        user=account(found.jid, found.password_file),
        admin=account(found.admin_jid, found.admin_password_file) if found.admin_jid else None,
        hint=f"see [context.{name}] in {file}",
    )


def _read_config(file: Path) -> _Config:
    try:
        text = file.read_text()
    except FileNotFoundError:
        return _Config()
    except OSError as error:
        raise UsageError(f"{file} cannot be read", cause=error.strerror) from None
    except UnicodeError as error:
        raise UsageError(f"{file} is not TOML", cause=str(error)) from None
    return _parsed(text, file)


def _parsed(text: str, file: Path) -> _Config:
    import tomllib  # most have no configuration

    try:
        fields = tomllib.loads(text)
        return msgspec.convert(fields, _Config)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{file} is wrong", cause=str(error), hint=_nearest_field(fields)
        ) from None
    except ValueError as error:  # a TOMLDecodeError, or a number of too many digits
        raise UsageError(f"{file} is not TOML", cause=str(error)) from None
    except RecursionError:
        raise UsageError(f"{file} cannot be read", cause="it nests too deeply") from None


def _nearest_field(config: dict[str, Any]) -> str | None:
    from kestrelctl.grammar.nearest import did_you_mean

    contexts = config.get("context")
    tables = list(contexts.values()) if isinstance(contexts, dict) else []
    for table, kind in [(config, _Config), *((each, _Configured) for each in tables)]:
        if isinstance(table, dict):
            for key in table:
                if key not in kind.__struct_fields__:
                    return did_you_mean(key, kind.__struct_fields__)
    return None
