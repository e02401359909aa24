"""One rule says what a domain is, wherever somebody names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kestrelctl.core.model.names import problem_with_domain
from kestrelctl.errors import UsageError
from kestrelctl.local.flock_membership import flock_domain
from kestrelctl.local.other_servers import parse_domain
from kestrelctl.worker.joined_pools import Membership


@pytest.mark.parametrize(
    "domain",
    ["localhost", "a_b.localhost", "pool-1.example.org", "_pool", "münchen.example", "x" * 63],
)
def test_a_pool_that_comes_up_with_a_domain_can_be_joined(domain: str, tmp_path: Path) -> None:
    assert problem_with_domain(domain) is None
    assert parse_domain(domain) == domain
    assert Membership(tmp_path, domain).directory == tmp_path / domain


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "..", "a..b", ".a", "a.", "-a", "a-", "a/b", "ada@b", "a b", "a\n", "x" * 64),
        ".".join(["x" * 63] * 4) + ".x",
    ],
)
def test_what_is_no_domain_is_none_anywhere(text: str, tmp_path: Path) -> None:
    assert problem_with_domain(text) is not None
    with pytest.raises(UsageError, match="is not a domain"):
        parse_domain(text)
    with pytest.raises(UsageError, match="is not a domain"):
        Membership(tmp_path, text)


def test_two_spellings_are_one_domain(tmp_path: Path) -> None:
    assert parse_domain("Pool.Example") == "pool.example" == parse_domain("pool.example")
    assert flock_domain("Aspen") == flock_domain("aspen")
    with pytest.raises(UsageError):
        Membership(tmp_path, "Pool.Example")
