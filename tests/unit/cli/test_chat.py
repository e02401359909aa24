"""`kestrelctl pool chat`: how to reach a pool with a chat client."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from cli_fake_pool import FakePool, run

from kestrelctl.access.context import Account, Context


@pytest.fixture
def context(tmp_path: Path) -> Context:
    (tmp_path / "password").write_text("not-to-be-seen\n")
    return Context(
        name="lab",
        pool="pool.internal",
        host="192.0.2.1",
        port=5222,
        tls=True,
        ca_file=tmp_path / "ca.pem",
        user=Account("ada@users.pool.internal", tmp_path / "password"),
        hint="",
    )


def test_it_says_all_that_a_client_needs(context: Context) -> None:
    said = run(FakePool(), "pool", "chat", context=context).stdout
    for words in (
        "jobs@pool.internal", "ada@users.pool.internal", "192.0.2.1 port 5222", "STARTTLS",
        str(context.ca_file), str(context.user.password_file),
    ):  # fmt: skip
        assert words in said


@pytest.mark.parametrize(("tls", "word"), [(True, "force"), (False, "disable")])
def test_it_says_the_line_that_profanity_takes(context: Context, tls: bool, word: str) -> None:
    context = msgspec.structs.replace(context, tls=tls)
    said = run(FakePool(), "pool", "chat", context=context).stdout
    line = f"/connect ada@users.pool.internal server 192.0.2.1 port 5222 tls {word}\n"
    assert line in said


def test_the_password_is_said_only_if_asked_for(context: Context) -> None:
    for options in ((), ("--output", "json")):
        said = run(FakePool(), "pool", "chat", *options, context=context).stdout
        assert "not-to-be-seen" not in said
        said = run(FakePool(), "pool", "chat", "--show-password", *options, context=context).stdout
        assert "not-to-be-seen" in said


def test_programs_read_it(context: Context) -> None:
    found = json.loads(run(FakePool(), "pool", "chat", "--output", "json", context=context).stdout)
    assert (found["jobs"], found["host"], found["port"]) == (
        "jobs@pool.internal",
        "192.0.2.1",
        5222,
    )
