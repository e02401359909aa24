"""An ejabberd's accounts: what is asked of it, and what is said when it refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest

WORKERS, USERS = "workers.pool.internal", "users.pool.internal"


class FakeEjabberd:
    """Keeps accounts, and answers as `rpc:call` of its functions is printed."""

    def __init__(self, **accounts: str) -> None:
        self.accounts = {f"{name}@{WORKERS}": password for name, password in accounts.items()}
        self.rounds = 0
        self.refuses = ""

    def ask(self, calls: Sequence[Sequence[str]]) -> list[str]:
        self.rounds += 1
        return [getattr(self, function)(*words) for _, function, *words in calls]

    def get_users(self, host: str) -> str:
        known = [each.split("@") for each in self.accounts if each.endswith(f"@{host}")]
        return "[" + ",".join(f'{{<<"{user}">>,<<"{at}">>}}' for user, at in known) + "]"

    def check_password(self, user: str, authorized: str, host: str, password: str) -> str:
        assert authorized == ""
        return str(self.accounts[f"{user}@{host}"] == password).lower()

    def try_register(self, user: str, host: str, password: str) -> str:
        if self.refuses:
            return self.refuses
        assert f"{user}@{host}" not in self.accounts
        self.accounts[f"{user}@{host}"] = password
        return "ok"

    def set_password(self, user: str, host: str, password: str) -> str:
        assert f"{user}@{host}" in self.accounts
        self.accounts[f"{user}@{host}"] = password
        return "ok"

    def remove_user(self, user: str, host: str) -> str:
        del self.accounts[f"{user}@{host}"]
        return "ok"


@pytest.fixture(scope="module")
def module(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("xmpp_server/library/ejabberd_account")


def carry_out(
    module: ModuleType,
    ejabberd: FakeEjabberd,
    accounts: dict[str, Any],
    *absent: str,
    rehearsal: bool = False,
) -> dict[str, list[str]]:
    server = module.Server(ejabberd.ask)
    done: dict[str, list[str]] = module.carry_out(server, accounts, absent, rehearsal=rehearsal)
    return done


def test_accounts_are_made_corrected_and_removed_and_others_left_alone(module: ModuleType) -> None:
    ejabberd = FakeEjabberd(w1="right", w2="wrong", w3="gone", joined="its own")
    wanted = {f"{name}@{WORKERS}": "right" for name in ("w1", "w2", "w4")}
    done = carry_out(module, ejabberd, wanted, f"w3@{WORKERS}", f"w9@{WORKERS}")
    assert done == {
        "created": [f"w4@{WORKERS}"],
        "updated": [f"w2@{WORKERS}"],
        "removed": [f"w3@{WORKERS}"],
    }
    assert ejabberd.accounts == {**wanted, f"joined@{WORKERS}": "its own"}


def test_a_second_run_changes_nothing(module: ModuleType) -> None:
    ejabberd, wanted = FakeEjabberd(), {f"w1@{WORKERS}": "right"}
    assert carry_out(module, ejabberd, wanted)["created"] == [f"w1@{WORKERS}"]
    assert not any(carry_out(module, ejabberd, wanted, f"w2@{WORKERS}").values())


def test_a_rehearsal_says_what_would_be_and_changes_nothing(module: ModuleType) -> None:
    ejabberd = FakeEjabberd(w2="wrong", w3="gone")
    before = dict(ejabberd.accounts)
    wanted = {f"w1@{WORKERS}": "right", f"w2@{WORKERS}": "right"}
    done = carry_out(module, ejabberd, wanted, f"w3@{WORKERS}", rehearsal=True)
    assert [len(names) for names in done.values()] == [1, 1, 1]
    assert ejabberd.accounts == before


def test_however_many_accounts_there_are_few_programs_are_started(module: ModuleType) -> None:
    ejabberd = FakeEjabberd()
    carry_out(module, ejabberd, {f"w{number}@{WORKERS}": "right" for number in range(1000)})
    assert ejabberd.rounds <= 5


def test_people_are_listed_by_their_addresses(module: ModuleType) -> None:
    ejabberd = FakeEjabberd(w1="right")
    ejabberd.accounts |= {f"bob@{USERS}": "right", f"ada@{USERS}": "right"}
    assert module.Server(ejabberd.ask).addresses([USERS]) == [f"ada@{USERS}", f"bob@{USERS}"]


def test_an_account_that_is_refused_is_named_with_what_was_said(module: ModuleType) -> None:
    ejabberd = FakeEjabberd()
    ejabberd.refuses = "{error,not_allowed}"
    with pytest.raises(module.BadAccount, match=rf"w1@{WORKERS}: it says {{error,not_allowed}}"):
        carry_out(module, ejabberd, {f"w1@{WORKERS}": "right"})


@pytest.mark.parametrize("address", ["W1@a.b", "w1", "w 1@a.b", "w1@a.b/x", 'w"1@a.b', "w1@a\tb"])
def test_an_address_that_ejabberd_would_change_is_refused(module: ModuleType, address: str) -> None:
    with pytest.raises(module.BadAccount):
        carry_out(module, FakeEjabberd(), {address: "right"})


@pytest.mark.parametrize("password", ["", "tab\there", "line\nhere", "ü", None])
def test_a_password_that_would_not_arrive_as_it_is_is_refused_and_not_shown(
    module: ModuleType, password: object
) -> None:
    with pytest.raises(module.BadAccount, match="must be printable ASCII") as refusal:
        carry_out(module, FakeEjabberd(), {f"w1@{WORKERS}": password})
    assert str(password or "?") not in str(refusal.value)
