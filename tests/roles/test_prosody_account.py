"""Prosody's accounts, written as Prosody itself would."""

from __future__ import annotations

import hashlib
import hmac
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

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
