"""What `kestrelctl pool asset` asks, and what it shows."""

from __future__ import annotations

import pytest
from cli_fake_pool import OF_POOL, POOL, RUNNABLE, FakePool, run
from msgspec.structs import replace

from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq


def test_a_number_is_set_for_the_whole_pool() -> None:
    pool = FakePool()
    assert run(pool, "pool", "asset", "set", "matlab", "5").stdout == "the pool has 5 matlab\n"
    [asked] = [request for request in pool.asked if isinstance(request, rq.SetAsset)]
    assert (asked.name, asked.total) == ("matlab", 5)
    assert [as_admin for _, as_admin in pool.opened] == [True]


@pytest.mark.parametrize("total", ["0", "-1", "nan", "inf", "1.5", "5G", str(1 << 63), ""])
def test_what_is_no_number_of_tokens_is_not_asked_for(total: str) -> None:
    pool = FakePool()
    result = run(pool, "pool", "asset", "set", "--", "matlab", total)
    assert result.exit_code == 2
    assert not pool.asked


def test_a_list_says_who_holds_and_who_waits() -> None:
    said = run(FakePool(), "pool", "asset", "list").stdout
    assert said == "NAME    TOTAL  HELD  WAITING\nmatlab      5     3    1,200\n"


def test_a_pool_without_assets_says_so() -> None:
    pool = FakePool(ListAssets=an.Assets(id="", assets=[]))
    assert "no assets of the pool itself" in run(pool, "pool", "asset", "list").stderr


def test_the_status_of_a_pool_has_a_line_for_each() -> None:
    pool = FakePool(PoolStatus=replace(POOL, assets=[OF_POOL]))
    assert "pool's own    matlab 3 of 5 held\n" in run(pool, "pool", "status").stdout
    assert "pool's own" not in run(FakePool(), "pool", "status").stdout


def test_who_asks_for_more_tokens_than_there_are_is_told_what_would_help() -> None:
    why = Refusal(Reason.TOKENS, "1,200 matlab", "5 in all")
    pool = FakePool(ExplainJob=replace(RUNNABLE, job_reasons=[why], ever=False))
    said = run(pool, "job", "explain", "7").stdout
    assert "hint: kestrelctl pool asset set matlab 1200, or: kestrelctl job cancel 7\n" in said


def test_nobody_is_told_to_set_more_tokens_than_a_pool_can_have() -> None:
    why = Refusal(Reason.TOKENS, "1,000,000,001 matlab", "5 in all")
    pool = FakePool(ExplainJob=replace(RUNNABLE, job_reasons=[why], ever=False))
    assert "hint: kestrelctl job cancel 7\n" in run(pool, "job", "explain", "7").stdout


def test_whom_a_quota_stops_is_told_where_to_see_it() -> None:
    why = Refusal(Reason.QUOTA, "at most 3 at once", "3 of user ada@example.org")
    pool = FakePool(ExplainJob=replace(RUNNABLE, job_reasons=[why]))
    assert "hint: kestrelctl user info ada@" in run(pool, "job", "explain", "7").stdout


def test_a_job_that_waits_for_tokens_says_so_before_all_else() -> None:
    why = Refusal(Reason.TOKENS, "1 matlab", "0 of 5 free")
    pool = FakePool(ExplainJob=replace(RUNNABLE, job_reasons=[why]))
    assert (
        "Too few of the pool's own are free (wanted 1 matlab, found 0 of 5 free).\n"
        in run(pool, "job", "explain", "7").stdout
    )
