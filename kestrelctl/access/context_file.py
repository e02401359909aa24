"""Changes a user's configuration of pools, whose other lines stay as they are."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from kestrelctl.access.context import check_config, own_config, read_own_config
from kestrelctl.access.keyring_password import store_password
from kestrelctl.core.model.names import NAME_RULE, is_name
from kestrelctl.errors import UsageError

#: What a context may be given, in the order in which it is written.
FIELDS = (
    "jid", "password_file", "keyring", "pool", "host", "port", "tls", "ca_file", "admin_jid",
    "admin_password_file",
)  # fmt: skip
_DEFAULT = re.compile(r"""^[ \t]*(["']?)default\1[ \t]*=.*$""", re.MULTILINE)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_TABLE = re.compile(r"^\s*\[", re.MULTILINE)
#: The same, with the remarks right above it.
_REMARKED_TABLE = re.compile(r"^(?:[ \t]*#.*\n)*[ \t]*\[", re.MULTILINE)


def add_context(name: str, fields: dict[str, str | int | bool], password: str = "") -> Path:
    """Adds a context to the user's own configuration; the first one becomes its default.

    Args:
        fields: by their names in the file; those of `FIELDS`.
        password: is stored in the system's keyring if `fields` say so, else in a file of the user's
            own, beside the configuration, which `password_file` then names; empty if it is there
            already.

    Returns:
        The configuration.

    Raises:
        UsageError: there is one of that name, or something about it is wrong.
        MissingTool: the package that reaches the keyring is not installed.
    """
    if not is_name(name):
        raise UsageError(f"{name[:80]!r} cannot be the name of a context", cause=NAME_RULE)
    with _changing() as file:
        default, known = read_own_config()
        if name in known:
            raise UsageError(
                f"there is a context {name} already", hint=f"kestrelctl context remove {name}"
            )
        in_file = bool(password) and not fields.get("keyring")
        if in_file:
            fields = fields | {"password_file": f"{name}.password"}
        lines = [f"{key} = {_toml(fields[key])}" for key in FIELDS if key in fields]
        text = file.read_text() if file.exists() else ""
        text = f"{text.rstrip()}\n\n{_header(name)}\n" + "\n".join(lines) + "\n"
        if not default and not known:
            text = _with_default(text, name)
        text = text.lstrip("\n")
        check_config(text, file)
        if in_file:
            _write(file.with_name(f"{name}.password"), f"{password}\n")
        elif password:
            store_password(str(fields["jid"]), password)
        _write(file, text)
    return file


def use_context(name: str) -> None:
    """Makes a context, or a pool of this machine, the one that commands mean.

    Raises:
        UsageError: the configuration is wrong.
    """
    with _changing() as file:
        text = _with_default(file.read_text() if file.exists() else "", name)
        check_config(text, file)
        _write(file, text)


def remove_context(name: str) -> None:
    """Takes a context out of the user's own configuration; its password file stays.

    Raises:
        UsageError: the configuration has none of that name.
    """
    with _changing() as file:
        default, known = read_own_config()
        if name not in known:
            raise UsageError(f"{file} has no context {name}", hint="kestrelctl context list")
        text = file.read_text()
        begin = re.search(rf"^{re.escape(_header(name))}\s*$", text, re.MULTILINE)
        if begin is None:
            raise UsageError(
                f"context {name} is not written as {_header(name)} in {file}",
                hint="remove it by hand",
            )
        end = _REMARKED_TABLE.search(text, begin.end())
        text = text[: begin.start()].rstrip("\n") + "\n\n" + (text[end.start() :] if end else "")
        if default == name:
            text = _DEFAULT.sub("", text, count=1)
        text = text.strip("\n") + "\n" if text.strip() else ""
        check_config(text, file)
        _write(file, text)


def _header(name: str) -> str:
    """The line that begins the table of a context."""
    return f"[context.{name if _BARE.fullmatch(name) else _toml(name)}]"


def _toml(value: str | int | bool) -> str:
    return json.dumps(value, ensure_ascii=False)


def _with_default(text: str, name: str) -> str:
    """Sets the default, which stands before the first table."""
    line = f"default = {_toml(name)}"
    table = _TABLE.search(text)
    head, rest = (text[: table.start()], text[table.start() :]) if table else (text, "")
    if _DEFAULT.search(head):
        return _DEFAULT.sub(lambda _: line, head, count=1) + rest
    head = head.strip("\n")
    return "\n".join(part for part in (head, line) if part) + "\n\n" + rest.lstrip("\n")


@contextlib.contextmanager
def _changing() -> Iterator[Path]:
    """Keeps other commands from changing the configuration between its reading and its writing.

    The lock is on a file of its own: the configuration is replaced by another file.
    """
    file = own_config()
    with contextlib.ExitStack() as stack:
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = stack.enter_context(file.with_name(f"{file.name}.lock").open("ab"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise UsageError(f"{file} cannot be written", cause=error.strerror) from None
        yield file


def _write(file: Path, text: str) -> None:
    """Writes a file that nobody else can read; it is there as a whole or not at all.

    A link, as to files that somebody keeps elsewhere, stays one.
    """
    file = Path(os.path.realpath(file))
    draft = file.with_name(f"{file.name}.new")
    try:
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600)
        draft.write_text(text)
        os.replace(draft, file)
    except OSError as error:
        raise UsageError(f"{file} cannot be written", cause=error.strerror) from None
