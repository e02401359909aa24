"""Passwords in the system's keyring (https://specifications.freedesktop.org/secret-service).

The package `keyring`, an extra of ours, finds the keyring of the system.
"""

from __future__ import annotations

from types import ModuleType

from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.missing_package import missing_package

#: Under this name, and that of the account, a password is in the keyring.
SERVICE = "kestrelctl"


def stored_password(jid: str) -> str:
    """Returns the password of an account.

    Raises:
        UsageError: the keyring has none, or cannot be used.
        MissingTool: the package is not installed.
    """
    keyring = _keyring()
    try:
        found = keyring.get_password(SERVICE, jid)
    except keyring.errors.KeyringError as error:
        raise _no_use(error) from None
    if not found:
        raise UsageError(
            f"the system's keyring has no password of {jid}",
            hint=f"keyring set {SERVICE} {jid}",
        )
    return str(found)


def store_password(jid: str, password: str) -> None:
    """Stores the password of an account, in place of an earlier one.

    Raises:
        UsageError: the keyring cannot be used.
        MissingTool: the package is not installed.
    """
    keyring = _keyring()
    try:
        keyring.set_password(SERVICE, jid, password)
    except keyring.errors.KeyringError as error:
        raise _no_use(error) from None


def _no_use(error: Exception) -> KestrelError:
    return UsageError(
        "the system's keyring cannot be used",
        cause=str(error).partition("\n")[0] or type(error).__name__,
        hint="without --keyring, `context add` keeps the password in a file that only you can read",
    )


def _keyring() -> ModuleType:
    try:
        import keyring
        import keyring.errors
    except ModuleNotFoundError:
        raise missing_package(
            "what reads the system's keyring, where the password is, is not installed", "keyring"
        ) from None
    return keyring
