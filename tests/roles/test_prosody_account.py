"""Prosody's accounts, written as Prosody itself would."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from role_files import ROLES

ADDRESS = "w1@workers.pool.internal"


@pytest.fixture(scope="module")
def module(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("xmpp_server/library/prosody_account")


@pytest.fixture
def storage(module: ModuleType, tmp_path: Path) -> Any:
    return module.Storage(tmp_path, "sha256", 50)


def test_an_account_that_is_not_there(storage: Any) -> None:
    assert storage.fits(ADDRESS, "secret") is None


def test_a_stored_password_is_known_again(storage: Any) -> None:
    storage.store(ADDRESS, "secret")
    assert storage.fits(ADDRESS, "secret") is True
    assert storage.fits(ADDRESS, "another") is False


def test_accounts_of_a_new_host_are_made_at_the_same_time(storage: Any) -> None:
    addresses = [f"n{number}@workers.pool.internal" for number in range(64)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(storage.store, addresses, addresses))
    assert all(storage.fits(address, address) for address in addresses)


def test_an_account_is_where_prosody_looks_for_it(storage: Any, tmp_path: Path) -> None:
    storage.store("node-1.a@workers.pool.internal", "secret")
    directory = tmp_path / "workers%2epool%2einternal" / "accounts"
    assert [file.name for file in directory.iterdir()] == ["node%2d1%2ea.dat"]
    assert stat.S_IMODE((directory / "node%2d1%2ea.dat").stat().st_mode) & 0o007 == 0


def test_the_keys_are_those_of_the_rfc(module: ModuleType, tmp_path: Path) -> None:
    storage = module.Storage(tmp_path, "sha1", 4096)
    stored, server = storage._keys("password", "salt", 4096)
    # RFC 6070, section 2, has the derived key of this password, salt and count.
    derived = bytes.fromhex("4b007901b765489abead49d926f721d065a429c1")
    assert server == hmac.digest(derived, b"Server Key", "sha1").hex()
    client = hmac.digest(derived, b"Client Key", "sha1")
    assert stored == hashlib.sha1(client).hexdigest()


def test_a_new_password_leaves_what_else_is_kept(storage: Any) -> None:
    storage.store(ADDRESS, "secret")
    file = storage.file(ADDRESS)
    file.write_text(file.read_text().replace("return {\n", 'return {\n\t["disabled"] = 1;\n'))
    storage.store(ADDRESS, "another")
    assert '["disabled"] = 1;' in file.read_text()
    assert storage.fits(ADDRESS, "another") is True


def test_what_prosody_wrote_with_another_hash_does_not_fit(
    module: ModuleType, storage: Any, tmp_path: Path
) -> None:
    module.Storage(tmp_path, "sha1", 50).store(ADDRESS, "secret")
    assert storage.fits(ADDRESS, "secret") is False


def test_an_account_without_keys_does_not_fit(storage: Any) -> None:
    storage.store(ADDRESS, "secret")
    storage.file(ADDRESS).write_text("return {\n};\n")
    assert storage.fits(ADDRESS, "secret") is False


def test_an_account_is_removed_with_all_that_is_stored_of_it(storage: Any, tmp_path: Path) -> None:
    storage.store(ADDRESS, "secret")
    storage.store("w2@workers.pool.internal", "secret")
    roster = tmp_path / "workers%2epool%2einternal" / "roster" / "w1.dat"
    roster.parent.mkdir()
    roster.touch()
    storage.remove(ADDRESS)
    assert not roster.exists()
    assert storage.fits(ADDRESS, "secret") is None
    assert storage.fits("w2@workers.pool.internal", "secret") is True


def test_nothing_is_left_when_the_disk_is_full(
    storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        storage.store(ADDRESS, "secret")
    assert list(storage.file(ADDRESS).parent.iterdir()) == []


@pytest.mark.parametrize("address", ["W1@a.b", "w1", "w 1@a.b", "w1@a.b/x", 'w"1@a.b'])
def test_an_address_that_prosody_would_change_is_refused(module: ModuleType, address: str) -> None:
    with pytest.raises(module.BadAccount):
        module.check(address, "secret")


@pytest.mark.parametrize("password", ["", "geheim\u00e4", "two\nlines"])
def test_a_password_that_prosody_would_change_is_refused(module: ModuleType, password: str) -> None:
    with pytest.raises(module.BadAccount):
        module.check(ADDRESS, password)


def test_the_accounts_of_a_host_are_listed_as_they_are_written_elsewhere(
    storage: Any, tmp_path: Path
) -> None:
    people = ["ada@users.pool.internal", "b_o-b.2@users.pool.internal"]
    for address in (*people, ADDRESS):
        storage.store(address, "secret")
    assert storage.addresses("users.pool.internal") == people
    assert storage.addresses("nowhere.internal") == []


BOB = "bob@users.pool.internal"
#: Prosody's tool, which notes what it is told and which accounts there are then.
PROSODYCTL = """\
#!/bin/sh
case $1 in
    status) exit {runs} ;;
esac
echo "$@: $(ls users%2epool%2einternal/accounts)" >>told
echo "OK: {answer}"
"""


class Removal:
    """An account that is removed from a server, which runs or not."""

    def __init__(self, storage: Any, directory: Path) -> None:
        self.storage, self.directory = storage, directory
        storage.store(BOB, "secret")

    def __call__(self, runs: bool, answer: str = "Total: 1 sessions closed") -> dict[str, Any]:
        program = self.directory / "prosodyctl"
        program.write_text(PROSODYCTL.format(runs=0 if runs else 2, answer=answer))
        program.chmod(0o755)
        arguments = {"absent": [BOB], "data_path": str(self.directory)}
        done = subprocess.run(
            [sys.executable, str(ROLES / "xmpp_server/library/prosody_account.py")],
            input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
            env={**os.environ, "PATH": f"{self.directory}:{os.environ['PATH']}"},
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )
        said: dict[str, Any] = json.loads(done.stdout)
        return said

    def told(self) -> list[str]:
        file = self.directory / "told"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def remove(storage: Any, tmp_path: Path) -> Removal:
    return Removal(storage, tmp_path)


def test_the_sessions_of_a_removed_account_end_also_of_who_comes_back_at_once(
    remove: Removal,
) -> None:
    assert remove(runs=True)["removed"] == [BOB]
    assert remove.told() == [
        f'shell c2s:close("{BOB}"): bob.dat',
        f'shell c2s:close("{BOB}"): ',
    ]


def test_an_account_stays_to_be_removed_if_its_sessions_cannot_be_ended(remove: Removal) -> None:
    said = remove(runs=True, answer="Error: no such command")
    assert said["failed"]
    assert f"did not end the sessions of {BOB}" in said["msg"]
    assert remove.storage.addresses("users.pool.internal") == [BOB]


def test_a_server_that_does_not_run_has_no_sessions(remove: Removal) -> None:
    assert remove(runs=False)["removed"] == [BOB]
    assert remove.told() == []
