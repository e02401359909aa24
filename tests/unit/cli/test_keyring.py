"""A context whose password is in the system's keyring, and in no file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import keyring
import keyring.backend
import keyring.backends.fail
import pytest
from click.testing import CliRunner, Result

from kestrelctl.access.context import find_context, read_password
from kestrelctl.cli.doctor import GOOD
from kestrelctl.cli.doctor import password as check_of_password
from kestrelctl.cli.main import kestrelctl
from kestrelctl.client.upload_record import upload_record
from kestrelctl.errors import MissingTool, UsageError

JID = "ada@example.org"
ADD = f"context add lab --keyring --jid {JID} --domain pool.example.org"


class InMemory(keyring.backend.KeyringBackend):
    """A keyring that is gone with the test."""

    priority = 1.0  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.passwords: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.passwords.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.passwords[service, username] = password


@pytest.fixture
def ring() -> Iterator[InMemory]:
    """The system's keyring, for the time of a test."""
    before, made = keyring.get_keyring(), InMemory()
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's configuration, which is not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("KESTREL_POOL", raising=False)
    return tmp_path / "config" / "kestrel" / "config.toml"


def types(line: str, status: int = 0) -> Result:
    done = CliRunner().invoke(kestrelctl, line.split(), input="secret\n")
    assert done.exit_code == status, done.output
    return done


def test_a_password_in_the_keyring_is_in_no_file(ring: InMemory, config: Path) -> None:
    types(ADD)
    assert ring.passwords == {("kestrelctl", JID): "secret"}
    for file in config.parent.iterdir():
        assert "secret" not in file.read_text()
    assert read_password(find_context("lab").user) == "secret"
    assert "secret" not in types("context show").output
    assert check_of_password(find_context("lab").user).state == GOOD


def test_the_admin_of_such_a_context_may_be_there_too(ring: InMemory, config: Path) -> None:
    types(ADD)
    config.write_text(config.read_text() + 'admin_jid = "root@example.org"\n')
    ring.set_password("kestrelctl", "root@example.org", "other")
    admin = find_context("lab").admin
    assert admin is not None
    assert read_password(admin) == "other"


def test_what_was_uploaded_is_noted_where_the_user_keeps_his_state(
    ring: InMemory, tmp_path: Path
) -> None:
    types(ADD)
    record = upload_record(find_context("lab"), lambda: 0.0)
    assert record._file.is_relative_to(tmp_path / "state")


def test_a_password_that_the_keyring_does_not_have_is_asked_for_with_the_command(
    ring: InMemory,
) -> None:
    types(ADD)
    ring.passwords.clear()
    account = find_context("lab").user
    with pytest.raises(UsageError) as refused:
        read_password(account)
    assert refused.value.hint == f"keyring set kestrelctl {JID}"
    assert check_of_password(account).state != GOOD


def test_where_there_is_no_keyring_nothing_is_added(ring: InMemory, config: Path) -> None:
    keyring.set_keyring(keyring.backends.fail.Keyring())
    done = types(ADD, status=UsageError.exit_status)
    assert "the system's keyring cannot be used" in done.output
    assert not config.exists()


def test_without_the_package_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, config: Path
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    done = types(ADD, status=MissingTool.exit_status)
    assert "install keyring" in done.output
    assert not config.exists()


@pytest.mark.parametrize(
    ("fields", "says"),
    [("", "none of password_file and"), ('keyring = true\npassword_file = "p"\n', "both of")],
)
def test_a_password_is_in_one_place(config: Path, fields: str, says: str) -> None:
    config.parent.mkdir(parents=True)
    config.write_text(f'[context.lab]\njid = "{JID}"\npool = "p.example.org"\n{fields}')
    with pytest.raises(UsageError) as refused:
        find_context("lab")
    assert says in (refused.value.cause or "")
    assert "exclude each other" in types(f"{ADD}2 --password-file p".replace("lab", "b"), 2).output
