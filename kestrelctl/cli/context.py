"""Which pool a command talks to: a context of the configuration, or a pool of this machine.

`$XDG_CONFIG_HOME/kestrel/config.toml` (https://specifications.freedesktop.org/basedir-spec):

    default = "lab"
    [context.lab]
    jid = "ada@example.org"
    password_file = "lab.password"      # relative to this file
    pool = "pool.example.org"
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from kestrelctl.cli.nearest import did_you_mean
from kestrelctl.errors import Unreachable, UsageError
from kestrelctl.local.state import PoolState, pools_directory, read_state

DEFAULT_LOCAL_POOL = "default"


class Account(msgspec.Struct, frozen=True):
    """An account at the XMPP server; the password is the first line of a file."""

    jid: str
    password_file: Path


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pool is, and as whom to talk to it.

    Attributes:
        pool: its XMPP domain.
        host: of the server; where the account lives.
        admin: for commands that only admins may use; None if `user` is all there is.
        hint: what to do if it cannot be reached.
    """

    name: str
    pool: str
    host: str
    port: int
    tls: bool
    user: Account
    admin: Account | None = None
    hint: str


class _Configured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    jid: str
    password_file: str
    pool: str
    host: str = ""
    port: int = 5222
    tls: bool = True


class _Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    default: str = ""
    context: dict[str, _Configured] = {}


def find_context(wanted: str) -> Context:
    """The pool that is meant.

    In this order: `wanted` (a context or a running local pool of that name), the configuration's
    `default`, its only context, the only running local pool or the one called `default`.

    Raises:
        Unreachable: there is none.
        UsageError: there are several, or the configuration is wrong.
    """
    config_file, config = _read_config()
    wanted = wanted or os.environ.get("KESTREL_POOL", "") or config.default
    if not wanted and len(config.context) == 1:
        wanted = next(iter(config.context))
    if wanted in config.context:
        return _configured(wanted, config.context[wanted], config_file)
    local = running_pools()
    if wanted:
        if wanted in local:
            return _local(local[wanted])
        known = sorted({*config.context, *local})
        raise Unreachable(
            f"no pool {wanted!r} is known or runs here",
            cause=f"known: {', '.join(known)}"
            if known
            else f"nothing is configured in {config_file}",
            hint=did_you_mean(wanted, known) or f"kestrelctl up --name {wanted}",
        )
    if config.context:
        names = ", ".join(sorted(config.context))
        raise UsageError(
            "which pool?",
            cause=f"several are configured: {names}",
            hint=f'--pool NAME, KESTREL_POOL, or default = "NAME" in {config_file}',
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


def running_pools() -> dict[str, PoolState]:
    """The pools that run on this machine for this user, by name."""
    found = (read_state(directory) for directory in sorted(pools_directory().glob("*")))
    return {pool.name: pool for pool in found if pool is not None}


def read_password(account: Account) -> str:
    """The password of an account.

    Raises:
        UsageError: its file cannot be read or is empty.
    """
    try:
        password = account.password_file.read_text().partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"the password of {account.jid} cannot be read",
            cause=f"{account.password_file}: {why}",
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
        hint=f"kestrelctl down --name {pool.name}; kestrelctl up --name {pool.name}",
    )


def _configured(name: str, found: _Configured, config_file: Path) -> Context:
    password_file = config_file.parent / Path(found.password_file).expanduser()
    return Context(
        name=name,
        pool=found.pool,
        host=found.host or found.jid.partition("/")[0].rpartition("@")[2],
        port=found.port,
        tls=found.tls,
        user=Account(found.jid, password_file),
        hint=f"see [context.{name}] in {config_file}",
    )


def _read_config() -> tuple[Path, _Config]:
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    file = Path(home) / "kestrel" / "config.toml"
    try:
        fields = tomllib.loads(file.read_text())
        return file, msgspec.convert(fields, _Config)
    except FileNotFoundError:
        return file, _Config()
    except OSError as error:
        raise UsageError(f"{file} cannot be read", cause=error.strerror) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not TOML", cause=str(error)) from None
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{file} is wrong", cause=str(error), hint=_nearest_field(fields)
        ) from None


def _nearest_field(config: dict[str, Any]) -> str | None:
    contexts = config.get("context")
    tables = list(contexts.values()) if isinstance(contexts, dict) else []
    for table, kind in [(config, _Config), *((each, _Configured) for each in tables)]:
        if isinstance(table, dict):
            for key in table:
                if key not in kind.__struct_fields__:
                    return did_you_mean(key, kind.__struct_fields__)
    return None
