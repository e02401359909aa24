"""Who may join, until when, and as whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kestrelctl.core.members.enrollment import (
    Invitation,
    admit,
    as_name,
    check_name,
    invite,
    is_temporary,
    parse_invitation,
)
from kestrelctl.errors import NotAllowed, UsageError

NOW = 1_795_190_000.0


@given(expires_at=st.integers(0, 10**12 - 1), name=st.sampled_from(["", "lab7", "a-b.c_d", "7"]))
def test_the_name_of_the_account_says_all(expires_at: int, name: str) -> None:
    invitation = Invitation(expires_at, "5f2c9ae1", name)
    assert is_temporary(invitation.account)
    assert parse_invitation(invitation.account) == invitation


@pytest.mark.parametrize("account", ["lab7", "join-", "join-x-y", "join-12", "join-12-"])
def test_any_other_account_is_no_invitation(account: str) -> None:
    assert parse_invitation(account) is None


def test_an_invitation_holds_from_a_minute_to_thirty_days() -> None:
    assert invite("", 60.0, NOW, "w").expires_at == NOW + 60
    assert invite("lab7", 30 * 86400.0, NOW, "w").name == "lab7"
    for seconds in (59.9, 30 * 86400.0 + 1, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="1 minute to 30 days"):
            invite("", seconds, NOW, "w")
    with pytest.raises(UsageError, match="cannot be the name"):
        invite("Lab 7", 60.0, NOW, "w")


def test_who_comes_in_time_joins_under_the_name_that_he_wants() -> None:
    assert admit(Invitation(int(NOW) + 1, "w"), "lab7", NOW) == "lab7"


def test_who_comes_too_late_is_told_since_when() -> None:
    with pytest.raises(NotAllowed, match="the token expired at 2026-11-20 15:53:20 UTC"):
        admit(Invitation(int(NOW), "w"), "lab7", NOW)


def test_a_name_that_was_fixed_wins_and_another_is_refused() -> None:
    invitation = Invitation(int(NOW) + 1, "w", "lab7")
    assert admit(invitation, "", NOW) == "lab7"
    assert admit(invitation, "lab7", NOW) == "lab7"
    with pytest.raises(NotAllowed, match="for a worker called lab7, not lab8"):
        admit(invitation, "lab8", NOW)


@pytest.mark.parametrize("name", ["lab7", "7", "a", "node-3.rack_2", "x" * 63])
def test_names_that_a_worker_can_have(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name", ["", "Lab7", "a b", "-a", "a.", "x" * 64, "a@b", "a/b", "ü", "a\n"]
)
def test_names_that_it_cannot(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name"):
        check_name(name)


def test_nobody_is_called_as_a_temporary_account() -> None:
    with pytest.raises(UsageError, match="begin with join-"):
        check_name("join-1-x")


@given(st.text() | st.sampled_from(("FLOCK", "Join-1-x", "join-" + 70 * "x")))
def test_a_host_name_becomes_a_valid_name_or_none(hostname: str) -> None:
    name = as_name(hostname)
    if name:
        check_name(name)


def test_a_machine_is_called_after_its_host_name() -> None:
    assert as_name("Lab7.Example.ORG") == "lab7.example.org"
    assert as_name("Ada's Mac Book") == "ada-s-mac-book"
    assert as_name("???") == ""
    assert as_name("FLOCK") == "host-flock"
    assert as_name("join-1-x") == "host-join-1-x"
