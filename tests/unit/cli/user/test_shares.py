"""Shares and bounds of users and groups, on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from cli_fake_pool import GROUP, RUNNABLE, USER, FakePool, run
from msgspec.structs import replace

from kestrelctl.cli.manager.commands import parse_half_life, parse_starving_time
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.errors import OverQuota, UsageError
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import FILES_KEPT_SECONDS


def changed(*options: str) -> rq.ChangeUser:
    pool = FakePool()
    found = run(pool, "user", "set", "ada", *options)
    assert found.exit_code == 0, found.stderr
    request = pool.last(rq.ChangeUser)
    assert isinstance(request, rq.ChangeUser)
    return request


def test_only_what_is_named_is_sent() -> None:
    change = changed("--weight", "2", "--max-queued", "none", "--limit", "memory=200G").change
    assert json.loads(json.dumps(_plain(change))) == {
        "weight": 2.0,
        "max_queued": None,
        "limits": {"memory": 200.0 * 2**30},
    }
    assert _plain(changed("--limit", "gpus=none", "--limit", "fpga=0").change) == {
        "limits": {"gpus": None, "fpga": 0.0}
    }
    assert _plain(changed("--max-running", "0").change) == {"max_running": 0}
    assert changed("--max-running", "0").max_stored_bytes is msgspec.UNSET


@pytest.mark.parametrize(
    ("said", "sent"), [("20G", 20 << 30), ("0", 0), ("none", None), ("default", "default")]
)
def test_what_may_be_stored_is_sent_as_bytes(said: str, sent: int | str | None) -> None:
    assert changed("--max-stored", said).max_stored_bytes == sent


def test_how_large_jobs_may_be_is_sent_as_bytes() -> None:
    assert changed("--max-queued-size", "64M").max_queued_bytes == 64 << 20
    assert changed("--max-queued-size", "none").max_queued_bytes is None
    assert changed("--max-queued-size", "default").max_queued_bytes == "default"
    assert changed("--max-queued", "7").max_queued_bytes is msgspec.UNSET


def test_how_large_jobs_are_is_shown() -> None:
    shown = run(FakePool(), "user", "info", "ada").stdout
    assert "queued size  2 MiB of at most 16 MiB\n" in shown
    for line in ("list", "usage"):
        table = run(FakePool(), "user", line, "-o", "wide").stdout
        assert "QUEUED SIZE" in table
        assert re.search(r"\b2 MiB +16 MiB\b", table), line
    assert "QUEUED SIZE" in run(FakePool(), "user", "usage").stdout


def _plain(value: object) -> object:
    return msgspec.to_builtins(value)


def test_a_user_is_put_into_a_group_or_taken_out() -> None:
    assert changed("--group", "physics").group == "physics"
    assert changed("--no-group").group == ""
    assert changed("--reset-usage").group is None
    assert changed("--reset-usage").reset_usage


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--group", "a", "--no-group"],
        ["--group", ""],
        ["--weight", "heavy"],
        ["--weight", "nan"],
        ["--weight", "0"],
        ["--max-running", "-1"],
        ["--max-queued", "many"],
        ["--max-queued", "1" + "0" * 18],
        ["--max-stored", "much"],
        ["--max-stored", "9000T"],
        ["--max-queued-size", "9000T"],
        ["--limit", "gpus"],
        ["--limit", "gpus=-1"],
        ["--limit", "gpus=1", "--limit", "gpus=2"],
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(options: list[str]) -> None:
    pool = FakePool()
    assert run(pool, "user", "set", "ada", *options).exit_code == 2
    assert pool.asked == []


def test_lists_show_shares_usage_and_bounds() -> None:
    found = run(FakePool(), "user", "list")
    assert found.stdout.splitlines() == [
        "USER                   GROUP    WEIGHT  SHARE  RUNNING  WAITING    USAGE  MAX RUNNING"
        "  MAX QUEUED  STORED  MAX STORED  LIMITS",
        "ada@users.example.org  physics       2    25%       12    4,988  12.50 h          500"
        "               3 GiB      20 GiB  0 fpga, 4 gpus",
    ]
    found = run(FakePool(), "group", "list")
    assert found.stdout.splitlines()[1].split() == [
        "physics", "3", "3", "60%", "30", "4,988", "25.00", "h", "1,000,000",
    ]  # fmt: skip
    assert json.loads(run(FakePool(), "-o", "json", "user", "list").stdout)[0]["share"] == 0.25


def test_all_pages_are_shown() -> None:
    first = an.Users(id="", users=[USER], after=USER.user)
    second = an.Users(id="", users=[replace(USER, user="bob@users.example.org")])
    pool = FakePool(ListUsers=lambda asked: second if asked.after else first)
    found = run(pool, "-o", "quiet", "user", "list")
    assert found.stdout.split() == ["ada@users.example.org", "bob@users.example.org"]


def test_a_user_is_told_about_whole() -> None:
    lines = run(FakePool(), "user", "info", "ada").stdout.splitlines()
    assert "share        25.0% of the pool now" in lines
    assert "tasks        12 running, 4,988 waiting" in lines
    assert "usage        12.50 h lately, weighted" in lines
    assert "stored       3 GiB" in lines
    assert "max stored   20 GiB" in lines
    assert "limits       0 fpga, 4 gpus" in lines
    nobody = FakePool(ListUsers=an.Users(id="", users=[]))
    assert run(nobody, "user", "info", "eve").exit_code == 7
    both = FakePool(ListUsers=an.Users(id="", users=[USER, replace(USER, user="ada@x")]))
    assert run(both, "user", "info", "ada").exit_code == 2


@pytest.mark.parametrize(
    ("members", "names", "said"),
    [
        (3, GROUP.names, "ada@users.example.org, bob@users.example.org, and 1 more"),
        (2, GROUP.names, "ada@users.example.org, bob@users.example.org"),
        (3, [], "3 users"),
        (0, [], "nobody"),
    ],
)
def test_a_group_is_told_about_with_the_members_that_one_may_know(
    members: int, names: list[str], said: str
) -> None:
    group = replace(GROUP, members=members, names=names)
    found = run(FakePool(ListGroups=an.Groups(id="", groups=[group])), "group", "info", "physics")
    assert f"members      {said}" in found.stdout.splitlines()
    nothing = FakePool(ListGroups=an.Groups(id="", groups=[]))
    assert run(nothing, "group", "info", "physics").exit_code == 7


def test_a_group_is_set_and_removed_as_the_admin() -> None:
    pool = FakePool()
    found = run(pool, "group", "set", "physics", "--weight", "3")
    assert found.stdout == "group physics is set\n"
    found = run(pool, "group", "remove", "physics")
    assert found.stdout == "group physics is removed\n"
    assert all(as_admin for _, as_admin in pool.opened)


def test_usage_by_group_names_those_in_none() -> None:
    lines = [an.UserLine(user="", wall_seconds=5.0), an.UserLine(user="physics", tasks=3)]
    pool = FakePool(UserUsage=an.UsedByUsers(id="", since=0.0, users=lines))
    found = run(pool, "user", "usage", "--by", "group")
    assert "GROUP" in found.stdout
    assert "(in no group)" in found.stdout
    assert pool.last(rq.UserUsage).by == "group"


def test_too_many_tasks_end_with_a_status_of_their_own() -> None:
    pool = FakePool(SubmitJob=OverQuota("ada has 7 tasks that have not ended"))
    assert run(pool, "submit", "--", "true").exit_code == 15


def test_half_lives_are_durations_of_a_minute_and_more() -> None:
    assert parse_half_life("12h") == 43_200.0
    for wrong in ("59s", "0", "never", "-1d"):
        with pytest.raises(UsageError):
            parse_half_life(wrong)


def test_a_pool_forgets_usage_as_its_operator_says() -> None:
    options = ManagerOptions(
        domain="pool", secret_file=Path("s"), data_dir=Path("d"), usage_half_life_seconds=60.0
    )
    assert options.config().usage_half_life_seconds == 60.0


def test_how_much_is_stored_for_whom_and_for_how_long_is_the_operators_to_say() -> None:
    options = ManagerOptions(
        domain="pool",
        secret_file=Path("s"),
        data_dir=Path("d"),
        max_stored_bytes=5,
        files_kept_seconds=60.0,
        max_queued_bytes=7,
    )
    config = options.config()
    assert (config.max_stored_bytes, config.files_kept_seconds) == (5, 60.0)
    assert config.max_queued_bytes == 7
    assert Config().max_stored_bytes is None
    assert Config().files_kept_seconds == FILES_KEPT_SECONDS


def test_whom_the_share_stops_is_told_what_helps() -> None:
    why = Refusal(Reason.MAX_STORED, "less than 3 MiB", "4 MiB stored")
    pool = FakePool(ExplainJob=replace(RUNNABLE, job_reasons=[why]))
    said = run(pool, "job", "explain", "7").stdout
    assert "its user has as much in the file share as is set for him" in said
    assert "user set ada@example.org --max-stored SIZE" in said


def test_who_starves_has_waited_for_a_second_at_least() -> None:
    assert parse_starving_time("10m") == 600.0
    for wrong in ("0.5s", "0", "never", "-1m"):
        with pytest.raises(UsageError):
            parse_starving_time(wrong)


def test_a_pool_lets_jobs_starve_as_long_as_its_operator_says() -> None:
    options = ManagerOptions(
        domain="pool", secret_file=Path("s"), data_dir=Path("d"), starving_seconds=5.0
    )
    assert options.config().starving_seconds == 5.0


def test_everybody_says_where_he_is_mailed_himself() -> None:
    for word, mail in (("ada@example.org", "ada@example.org"), ("none", "")):
        pool = FakePool()
        found = run(pool, "user", "mail", word)
        assert found.exit_code == 0, found.stderr
        assert pool.last(rq.ChangeUser) == rq.ChangeUser(
            id=pool.last(rq.ChangeUser).id, user="", mail=mail
        )


def test_an_admin_says_where_somebody_is_mailed() -> None:
    assert changed("--mail", "ada@example.org").mail == "ada@example.org"
    assert changed("--mail", "none").mail == ""
    assert changed("--weight", "2").mail is None


@pytest.mark.parametrize("words", [("mail",), ("set", "ada", "--mail")])
@pytest.mark.parametrize("address", [" ", "ada", "ada@example.org\nBcc: eve@example.org"])
def test_what_is_no_address_is_not_sent(words: tuple[str, ...], address: str) -> None:
    pool = FakePool()
    found = run(pool, "user", *words, address)
    assert found.exit_code == 2
    assert "no plain address" in found.stderr
    assert pool.asked == []


def test_the_address_is_among_what_is_set() -> None:
    pool = FakePool()
    pool.answers["ListUsers"] = an.Users(id="", users=[replace(USER, mail="ada@example.org")])
    assert "mail         ada@example.org" in run(pool, "user", "info", "ada").stdout
    [listed] = json.loads(run(pool, "user", "list", "-o", "json").stdout)
    assert listed["mail"] == "ada@example.org"
