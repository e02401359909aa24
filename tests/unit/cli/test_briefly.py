"""Commands of a moment: they need no event loop, and whatever does not go well begins anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_fake_pool import FakePool, run
from click.testing import Result

from kestrelctl.errors import Unreachable
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq

OF_A_MOMENT = [
    ("job", "list"),
    ("job", "list", "-o", "json"),
    ("job", "logs", "7"),
    ("submit", "--", "x"),
    ("submit", "--array", "1-3", "-q", "--", "x", "{}"),
]
AWAY = Unreachable("the pool is away")


class Loops:
    """Counts the event loops that commands run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        self._run = asyncio.run
        monkeypatch.setattr(asyncio, "run", self._counted)

    def _counted(self, *args: Any, **kwargs: Any) -> object:
        self.made += 1
        return self._run(*args, **kwargs)


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> Loops:
    return Loops(monkeypatch)


@pytest.mark.parametrize("words", OF_A_MOMENT)
def test_they_need_no_event_loop(loops: Loops, words: tuple[str, ...]) -> None:
    pool = FakePool()
    result = run(pool, *words)
    assert (result.exit_code, loops.made, len(pool.opened)) == (0, 0, 1)
    assert result.output == run(FakePool(), *words, briefly=False).output
    assert loops.made == 1


def failing_first(answer: an.AnyAnswer) -> Callable[[rq.AnyRequest], an.AnyAnswer]:
    """Is away when it is asked first, and answers then."""
    left = [AWAY]

    def answered(_request: rq.AnyRequest) -> an.AnyAnswer:
        if left:
            raise left.pop()
        return answer

    return answered


@pytest.mark.parametrize("words", OF_A_MOMENT)
def test_what_does_not_go_well_begins_anew_and_prints_once(
    loops: Loops, words: tuple[str, ...]
) -> None:
    usual, well = FakePool(), run(FakePool(), *words)
    for name, answer in list(usual.answers.items()):
        if not callable(answer):
            usual.answers[name] = failing_first(answer)
    result = run(usual, *words)
    assert (result.exit_code, result.output) == (0, well.output)
    assert loops.made == 1


def test_more_than_one_job_that_waits_is_asked_about_at_once(loops: Loops) -> None:
    waiting = [_waiting(number) for number in (1, 2)]
    jobs = an.Jobs(id="", jobs=waiting, total=2)
    result = run(FakePool(ListJobs=jobs), "job", "list")
    assert (result.exit_code, loops.made) == (0, 1)
    jobs = an.Jobs(id="", jobs=waiting[:1], total=1)
    result = run(FakePool(ListJobs=jobs), "job", "list")
    assert (result.exit_code, loops.made) == (0, 1)


def _waiting(number: int) -> an.JobView:
    from msgspec.structs import replace

    known = FakePool().answers["ListJobs"]
    assert isinstance(known, an.Jobs)
    return replace(known.jobs[0], job_id=number, state="active", waiting=1, running=0)


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "--wait", "--", "x"),
        ("submit", "--input", "{file}", "--", "x"),
        ("submit", "--each-line", "{many}", "--", "x", "{{}}"),
        ("job", "logs", "7", "--all"),
        ("job", "wait", "7"),
        ("job", "cancel", "7"),
        ("job", "list", "-v"),
    ],
)
def test_what_takes_longer_begins_with_a_loop(
    loops: Loops, tmp_path: Path, words: tuple[str, ...]
) -> None:
    file, many = tmp_path / "file", tmp_path / "many"
    file.write_text("data")
    many.write_text(f"{'item' * 100}\n" * 1000)
    pool = FakePool()
    run(pool, *(word.format(file=file, many=many) for word in words))
    assert (loops.made, len(pool.opened)) == (1, 1)


def test_a_refusal_is_told_at_once(loops: Loops) -> None:
    from kestrelctl.errors import NotFound

    result: Result = run(FakePool(Logs=NotFound("there is no job 7")), "job", "logs", "7")
    assert (result.exit_code, loops.made) == (NotFound.exit_status, 0)
    assert result.stderr.startswith("error: there is no job 7")
