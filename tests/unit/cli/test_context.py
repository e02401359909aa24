"""Which pool a command talks to, and as whom."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kestrelctl.access import context
from kestrelctl.access.connection import ask, open_pool
from kestrelctl.access.context import find_context, read_password
from kestrelctl.errors import KestrelError, Unreachable, Untrusted, UsageError
from kestrelctl.local.pool_state import PoolState, pool_directory, write_state
from kestrelctl.protocol import answers as an
from kestrelctl.protocol.requests import PoolStatus
from kestrelctl.xmpp import user

LAB = """
[context.lab]
jid = "ada@example.org"
password_file = "lab.password"
pool = "pool.example.org"
"""
OFFICE = """
[context.office]
jid = "ada@office.example.org/desk"
password_file = "/run/secrets/office"
pool = "pool.office.example.org"
host = "xmpp.office.example.org"
port = 5223
"""


class Config:
    """The configuration of a user, and that of the machine."""

    def __init__(self, file: Path, system: Path) -> None:
        self.file = file
        self.system = system

    def write(self, text: str, password: str | None = None) -> None:
        """Configures pools, and perhaps the password of `lab`."""
        self.file.write_text(text)
        if password is not None:
            (self.file.parent / "lab.password").write_text(password)


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A user without configuration or pools."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("KESTREL_POOL", raising=False)
    monkeypatch.setattr(context, "SYSTEM_CONFIG", tmp_path / "etc" / "config.toml")
    (tmp_path / "etc").mkdir()
    file = tmp_path / "config" / "kestrel" / "config.toml"
    file.parent.mkdir(parents=True)
    return Config(file, context.SYSTEM_CONFIG)


def run_locally(name: str, pid: int | None = None) -> None:
    """Makes it look as if a pool ran here: as long as this process does, or another."""
    directory = pool_directory(name)
    directory.mkdir(parents=True)
    write_state(
        directory,
        PoolState(
            name=name,
            pid=os.getpid() if pid is None else pid,
            domain=f"{name}.localhost",
            host="127.0.0.1",
            port=40_000,
            user="user@users.localhost",
            password_file=str(directory / "user.password"),
            admin="admin@users.localhost",
            admin_password_file=str(directory / "admin.password"),
            workers=1,
            server_pid=0,
            manager_pid=0,
            worker_pids=[],
        ),
    )


def test_without_any_pool_it_says_how_to_start_one() -> None:
    with pytest.raises(Unreachable) as caught:
        find_context("")
    assert caught.value.hint == "kestrelctl up"


def test_the_only_local_pool_is_meant() -> None:
    run_locally("mine")
    context = find_context("")
    assert (context.name, context.pool, context.port) == ("mine", "mine.localhost", 40_000)
    assert not context.tls
    assert context.user.jid == "user@users.localhost"
    assert context.admin is not None
    assert context.admin.jid == "admin@users.localhost"


def test_of_several_local_pools_the_default_is_meant() -> None:
    run_locally("default")
    run_locally("other")
    assert find_context("").name == "default"
    assert find_context("other").name == "other"


def test_of_several_others_none_is_meant() -> None:
    run_locally("a")
    run_locally("b")
    with pytest.raises(UsageError, match="which pool") as caught:
        find_context("")
    assert caught.value.cause == "several run here: a, b"


def test_a_local_pool_that_has_ended_is_not_meant() -> None:
    run_locally("gone", pid=2**22 + 1)
    with pytest.raises(Unreachable):
        find_context("gone")


def test_a_configured_context_is_meant_before_a_local_pool(config: Config) -> None:
    run_locally("default")
    config.write(LAB)
    context = find_context("")
    assert (context.name, context.pool) == ("lab", "pool.example.org")
    assert (context.host, context.port, context.tls) == ("example.org", 5222, True)
    assert context.user.password_file == config.file.parent / "lab.password"
    assert context.admin is None
    assert find_context("default").pool == "default.localhost"


def test_the_default_context_is_meant(config: Config) -> None:
    config.write(f'default = "office"\n{LAB}{OFFICE}')
    context = find_context("")
    assert (context.name, context.host, context.port) == (
        "office",
        "xmpp.office.example.org",
        5223,
    )
    assert context.user.password_file == Path("/run/secrets/office")


def test_the_option_counts_more_than_the_environment_and_this_more_than_the_file(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write(f'default = "office"\n{LAB}{OFFICE}')
    monkeypatch.setenv("KESTREL_POOL", "lab")
    assert find_context("").name == "lab"
    assert find_context("office").name == "office"


def test_of_several_contexts_none_is_meant(config: Config) -> None:
    config.write(LAB + OFFICE)
    with pytest.raises(UsageError, match="which pool") as caught:
        find_context("")
    assert caught.value.cause == "several are configured: lab, office"


def test_the_domain_of_a_pool_that_only_one_has_is_its_name_too(config: Config) -> None:
    config.write(LAB)
    run_locally("mine")
    assert find_context("pool.example.org").name == "lab"
    assert find_context("mine.localhost").name == "mine"


def test_a_domain_that_several_have_names_none_of_them(config: Config) -> None:
    again = LAB.replace("context.lab", "context.root").replace("ada@", "root@")
    config.write(LAB + again)
    with pytest.raises(UsageError, match="which pool") as caught:
        find_context("pool.example.org")
    assert caught.value.cause == "of the domain pool.example.org are lab, root"


def test_a_name_that_nobody_knows_is_refused_with_the_nearest(config: Config) -> None:
    config.write(LAB)
    run_locally("default")
    with pytest.raises(Unreachable) as caught:
        find_context("lba")
    assert caught.value.cause == "known: default, lab"
    assert caught.value.hint == "did you mean lab?"


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("[context.x", "is not TOML", None),
        (f"port = {'9' * 5000}", "is not TOML", None),
        (f"x = {'[' * 5000}{']' * 5000}", "cannot be read", None),
        ("contexts = {}", "is wrong", "did you mean context?"),
        (LAB + 'passwordfile = "x"', "is wrong", "did you mean password_file?"),
        ('[context.x]\njid = "a@b"', "is wrong", None),
        (LAB + 'port = "x"', "is wrong", None),
        (LAB + 'admin_jid = "root@example.org"', "is wrong", None),
        (LAB + "port = 99999", "is wrong", None),
        (LAB + "port = -1", "is wrong", None),
        (LAB + 'host = "a b"', "is wrong", None),
        (LAB + 'ca_file = "a\\u0000b"', "is wrong", None),
        (LAB.replace("pool.example.org", ""), "is wrong", None),
        *((LAB.replace("ada@", name), "is wrong", None) for name in ("", "@", "a d@", "a@b@")),
    ],
)
def test_a_wrong_configuration_is_refused(
    config: Config, text: str, error: str, hint: str | None
) -> None:
    config.write(text)
    with pytest.raises(UsageError, match=error) as caught:
        find_context("")
    assert caught.value.hint == hint


# -- the machine's configuration -------------------------------------------------------------------


def test_without_a_configuration_of_ones_own_the_machines_counts(config: Config) -> None:
    config.system.write_text(OFFICE)
    found = find_context("")
    assert found.name == "office"
    assert found.hint == f"see [context.office] in {config.system}"


def test_ones_own_configuration_goes_before_the_machines(config: Config) -> None:
    config.system.write_text(f'default = "office"\n{OFFICE}{LAB.replace("ada@", "grace@")}')
    config.write(LAB)
    assert find_context("").name == "office"
    lab = find_context("lab")
    assert lab.user.jid == "ada@example.org"
    assert lab.hint == f"see [context.lab] in {config.file}"
    config.write(f'default = "lab"\n{LAB}')
    assert find_context("").name == "lab"


def test_files_are_found_beside_the_configuration_that_names_them(config: Config) -> None:
    config.system.write_text(
        f"""{LAB}ca_file = "ca.pem"
admin_jid = "root@example.org"
admin_password_file = "admin.password"
"""
    )
    config.write(f"""{OFFICE}ca_file = "office.pem"\n""")
    lab, office = find_context("lab"), find_context("office")
    assert lab.ca_file == config.system.parent / "ca.pem"
    assert lab.admin == context.Account("root@example.org", config.system.parent / "admin.password")
    assert office.ca_file == config.file.parent / "office.pem"


def test_an_error_in_the_machines_configuration_names_that(config: Config) -> None:
    config.system.write_text("[context.x")
    with pytest.raises(UsageError, match=str(config.system)):
        find_context("")


def test_the_password_of_another_can_be_read_with_sudo(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(UsageError, match="password of root@x cannot be read") as caught:
        context.read_password(context.Account("root@x", Path("/etc/kestrel/admin.password")))
    assert caught.value.cause == "/etc/kestrel/admin.password: Permission denied"
    assert "sudo" in str(caught.value.hint)


# -- connecting ------------------------------------------------------------------------------------


class Logins:
    """Stands in for the real connection; remembers who came in, and how."""

    def __init__(self, failure: KestrelError | None = None) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.failure = failure

    @asynccontextmanager
    async def connect_user(self, *args: Any, tls: bool, ca_file: Path | None) -> AsyncIterator[Any]:
        if self.failure is not None:
            raise self.failure
        self.seen.append((*args, tls, ca_file))
        yield None


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> Logins:
    found = Logins()
    monkeypatch.setattr(user, "connect_user", found.connect_user)
    return found


async def test_it_logs_in_with_the_first_line_of_the_password_file(
    config: Config, logins: Logins
) -> None:
    config.write(LAB, "open sesame\nsecond line\n")
    async with open_pool("lab"):
        pass
    assert logins.seen == [
        ("ada@example.org", "open sesame", "pool.example.org", "example.org", 5222, True, None)
    ]


async def test_an_admin_command_uses_the_admins_account_of_a_local_pool(logins: Logins) -> None:
    run_locally("default")
    (pool_directory("default") / "admin.password").write_text("s3cret")
    async with open_pool("", as_admin=True):
        pass
    assert logins.seen[0][:2] == ("admin@users.localhost", "s3cret")


async def test_an_admin_command_uses_the_admins_account_of_a_context(
    config: Config, logins: Logins
) -> None:
    config.write(
        f'{LAB}ca_file = "ca.pem"\nadmin_jid = "root@example.org"\n'
        'admin_password_file = "admin.password"\n',
        "open sesame",
    )
    (config.file.parent / "admin.password").write_text("s3cret")
    async with open_pool("", as_admin=True), open_pool(""):
        pass
    assert [seen[:2] for seen in logins.seen] == [
        ("root@example.org", "s3cret"),
        ("ada@example.org", "open sesame"),
    ]
    assert logins.seen[0][-1] == config.file.parent / "ca.pem"


async def test_a_server_that_is_not_trusted_comes_with_two_hints(
    config: Config, logins: Logins
) -> None:
    config.write(LAB, "x")
    logins.failure = Untrusted("not trusted", hint="give it the CA")
    with pytest.raises(Untrusted) as caught:
        async with open_pool(""):
            pass
    assert caught.value.hint == f"give it the CA; see [context.lab] in {config.file}"


async def test_elsewhere_it_uses_the_account_that_there_is(config: Config, logins: Logins) -> None:
    config.write(LAB, "x")
    async with open_pool("", as_admin=True):
        pass
    assert logins.seen[0][0] == "ada@example.org"


def test_a_file_of_somebody_who_is_unknown_is_a_name_like_any_other(config: Config) -> None:
    """Nobody is `~nobody-here`, so it is no place for a file of his."""
    config.write(LAB.replace("lab.password", "~nobody-here/lab"), None)
    with pytest.raises(UsageError, match="cannot be read") as found:
        read_password(find_context("").user)
    assert "~nobody-here/lab: No such file" in (found.value.cause or "")


@pytest.mark.parametrize("text", [None, "", "\n"])
async def test_a_missing_password_is_refused(
    config: Config, logins: Logins, text: str | None
) -> None:
    config.write(LAB, text)
    with pytest.raises(UsageError, match="the password of ada@"):
        async with open_pool(""):
            pass


async def test_a_pool_that_is_away_comes_with_a_hint(config: Config, logins: Logins) -> None:
    config.write(LAB, "x")
    logins.failure = Unreachable("no server", cause="refused")
    with pytest.raises(Unreachable, match="no server") as caught:
        async with open_pool(""):
            pass
    assert caught.value.cause == "refused"
    assert caught.value.hint == f"see [context.lab] in {config.file}"


async def test_an_answer_of_another_kind_is_an_error() -> None:
    class Confused:
        async def ask(self, request: Any, timeout_seconds: float, **_: Any) -> Any:
            return an.Changed(id="", what=[])

    with pytest.raises(KestrelError, match="something else"):
        await ask(Confused(), PoolStatus(), an.PoolSummary)  # type: ignore[arg-type]
