#!/usr/bin/python
"""Ansible module: accounts of a Prosody with internal storage and hashed passwords."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: prosody_account
short_description: Make, correct and remove accounts of Prosody
description:
  - For C(authentication = "internal_hashed") and C(storage = "internal"), whose files are written
    directly, each whole or not at all. Prosody reads them at each login, so it may be running and
    needs no reload, and a thousand accounts take seconds.
  - A stored key (RFC 5802) is compared with the wanted password; nothing is written if it fits.
  - Accounts that are not named are left alone. Sessions that are open stay open, except those of
    accounts that are removed; if a server that runs does not end these, it fails.
options:
  accounts:
    description: Address of each account that must exist, and its password.
    type: dict
    default: {}
  absent:
    description: Addresses of accounts that must not exist.
    type: list
    elements: str
    default: []
  list_hosts:
    description: Hosts whose accounts are listed, as they are before anything is changed.
    type: list
    elements: str
    default: []
  data_path:
    description: Prosody's data directory; its owner will own the accounts.
    type: path
    default: /var/lib/prosody
  password_hash:
    description: Prosody's option of that name.
    type: str
    choices: [SHA-1, SHA-256]
    default: SHA-256
  iterations:
    description: Rounds of PBKDF2 for new passwords.
    type: int
    default: 10000
author: Kestrel
"""

EXAMPLES = """
- name: Provide the accounts
  prosody_account:
    accounts:
      node1@workers.pool.internal: "{{ password }}"

- name: Remove an account
  prosody_account:
    absent: [node2@workers.pool.internal]
"""

RETURN = """
created:
  description: Addresses of accounts that were made.
  type: list
updated:
  description: Addresses of accounts whose password was corrected.
  type: list
removed:
  description: Addresses of accounts that were removed.
  type: list
found:
  description: Addresses of the accounts at C(list_hosts), in order.
  type: list
"""

_DIGESTS = {"SHA-1": "sha1", "SHA-256": "sha256"}
_FIELD = re.compile(r'^\s*\["(\w+)"\] = (?:"([^"\\]*)"|(\d+(?:\.\d+)?));$', re.MULTILINE)
_ADDRESS = re.compile(r"[a-z0-9._-]+@[a-z0-9.-]+")
_OPENED_BY_PASSWORD = ("stored_key", "server_key", "salt", "iteration_count")


class BadAccount(Exception):
    """What was asked for cannot be; the text says why."""


@dataclass(frozen=True)
class Storage:
    """Prosody's directory of accounts, and how it hashes passwords.

    Attributes:
        data_path: Prosody's data directory.
        digest: name of the hash function, as hashlib has it.
        iterations: rounds for new passwords.
    """

    data_path: Path
    digest: str
    iterations: int

    def file(self, address: str) -> Path:
        """Return where an account is kept."""
        name, _, host = address.partition("@")
        return self.data_path / encode(host) / "accounts" / f"{encode(name)}.dat"

    def addresses(self, host: str) -> list[str]:
        """Return the addresses of all accounts at a host, in order."""
        files = (self.data_path / encode(host) / "accounts").glob("*.dat")
        return sorted(f"{unquote(file.stem)}@{host}" for file in files)

    def fits(self, address: str, password: str) -> bool | None:
        """Tell whether the account has this password; None if there is no account."""
        try:
            fields = parse(self.file(address).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        try:
            salt, iterations = str(fields["salt"]), int(fields["iteration_count"])
            kept = f"{fields['stored_key']}{fields['server_key']}"
        except KeyError:
            return False
        wanted = "".join(self._keys(password, salt, iterations))
        return hmac.compare_digest(kept, wanted)

    def store(self, address: str, password: str) -> None:
        """Make an account or give it a new password; other fields of it stay."""
        file = self.file(address)
        salt = secrets.token_hex(16)
        stored_key, server_key = self._keys(password, salt, self.iterations)
        fields: dict[str, str | int] = {
            "iteration_count": self.iterations,
            "salt": salt,
            "server_key": server_key,
            "stored_key": stored_key,
        }
        if file.exists():
            former = parse(file.read_text(encoding="utf-8"))
            fields.update(
                (key, value) for key, value in former.items()
                if key not in (*_OPENED_BY_PASSWORD, "password")
            )  # fmt: skip
        owner = self.data_path.stat()
        for directory in (file.parent.parent, file.parent):
            with suppress(FileExistsError):
                directory.mkdir(mode=0o750)
                os.chown(directory, owner.st_uid, owner.st_gid)
        # Not Prosody's own scratch name, which is the file's with a `~`.
        draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                os.fchown(stream.fileno(), owner.st_uid, owner.st_gid)
                stream.write(render(fields))
            draft.replace(file)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def remove(self, address: str) -> None:
        """Remove an account and all that is stored of it."""
        name, _, host = address.partition("@")
        self.file(address).unlink(missing_ok=True)
        for file in (self.data_path / encode(host)).glob(f"*/{encode(name)}.*"):
            if file.is_dir():
                shutil.rmtree(file)
            else:
                file.unlink()

    def _keys(self, password: str, salt: str, iterations: int) -> tuple[str, str]:
        """Return StoredKey and ServerKey of RFC 5802, section 3, in hexadecimal digits."""
        salted = hashlib.pbkdf2_hmac(self.digest, password.encode(), salt.encode(), iterations)
        client_key = hmac.digest(salted, b"Client Key", self.digest)
        server_key = hmac.digest(salted, b"Server Key", self.digest)
        return hashlib.new(self.digest, client_key).hexdigest(), server_key.hex()


def encode(name: str) -> str:
    """Encode as Prosody's internal storage does: every byte but ASCII letters and digits."""
    return "".join(
        chr(byte) if byte < 128 and chr(byte).isalnum() else f"%{byte:02x}"
        for byte in name.encode()
    )


def parse(text: str) -> dict[str, str | int]:
    """Return the plain fields of a stored account."""
    return {
        key: int(float(number)) if number else string
        for key, string, number in _FIELD.findall(text)
    }


def render(fields: dict[str, str | int]) -> str:
    """Return an account as Prosody stores it."""
    lines = [
        f'\t["{key}"] = {value};' if isinstance(value, int) else f'\t["{key}"] = "{value}";'
        for key, value in sorted(fields.items())
    ]
    return "\n".join(["return {", *lines, "};", ""])


def check(address: str, password: str | None) -> None:
    """Refuse what Prosody would know under another name, or as another password.

    Raises:
        BadAccount: it must not be stored as it is.
    """
    if not _ADDRESS.fullmatch(address):
        raise BadAccount(f"{address!r} is no account's address: name@host in lower case")
    if password is None:
        return
    if not (isinstance(password, str) and password and password.isascii()
            and password.isprintable()):  # fmt: skip
        raise BadAccount(f"the password of {address} must be printable ASCII")


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "accounts": {"type": "dict", "default": {}, "no_log": True},
            "absent": {"type": "list", "elements": "str", "default": []},
            "list_hosts": {"type": "list", "elements": "str", "default": []},
            "data_path": {"type": "path", "default": "/var/lib/prosody"},
            "password_hash": {
                "type": "str",
                "choices": list(_DIGESTS),
                "default": "SHA-256",
                "no_log": False,
            },
            "iterations": {"type": "int", "default": 10000},
        },
        supports_check_mode=True,
    )
    accounts: dict[str, str] = module.params["accounts"]
    storage = Storage(
        Path(module.params["data_path"]),
        _DIGESTS[module.params["password_hash"]],
        module.params["iterations"],
    )
    result: dict[str, list[str]] = {"created": [], "updated": [], "removed": []}
    found: list[str] = []
    try:
        for address, password in accounts.items():
            check(address, password)
        for address in module.params["absent"]:
            check(address, None)
        found = [each for host in module.params["list_hosts"] for each in storage.addresses(host)]
        # Hashing lets other threads run.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            verdicts = dict(
                zip(accounts, pool.map(storage.fits, accounts, accounts.values()), strict=True)
            )
            wrong = [address for address, verdict in verdicts.items() if verdict is not True]
            result["created"] = [address for address in wrong if verdicts[address] is None]
            result["updated"] = [address for address in wrong if verdicts[address] is False]
            result["removed"] = [
                address for address in module.params["absent"] if storage.file(address).exists()
            ]
            if not module.check_mode:
                list(pool.map(lambda address: storage.store(address, accounts[address]), wrong))
        if result["removed"] and not module.check_mode:
            ends_sessions = _server_runs(module)
            for address in result["removed"]:
                if ends_sessions:  # while there is the account: after a failure a run tries again
                    _end_sessions(module, address)
                storage.remove(address)
                if ends_sessions:  # of whoever has just come back
                    _end_sessions(module, address)
    except BadAccount as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(
            msg=f"accounts cannot be kept in {storage.data_path}: {error.strerror}"
            + (f" ({error.filename})" if error.filename else "")
        )
    module.exit_json(changed=any(result.values()), found=found, **result)


def _server_runs(module: AnsibleModule) -> bool:
    if not shutil.which("prosodyctl"):
        return False
    status, _, _ = module.run_command(["prosodyctl", "status"])
    return bool(status == 0)


def _end_sessions(module: AnsibleModule, address: str) -> None:
    """Close what the account has open, or fail."""
    status, out, error = module.run_command(["prosodyctl", "shell", f'c2s:close("{address}")'])
    if status != 0 or "sessions closed" not in out:
        module.fail_json(
            msg=f"the server did not end the sessions of {address}: {(error or out).strip()}"
            " (prosodyctl shell c2s show lists them; a restart of Prosody ends all)"
        )


if __name__ == "__main__":
    main()
