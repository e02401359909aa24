"""An executor on its own machine."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kestrelctl.client.calls import Call, CallFailed, Calls, _Interpreter, _Job
from kestrelctl.client.executor import remove_left_over
from kestrelctl.protocol.channels import TaskWrote


def test_what_a_killed_program_has_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    gone = tmp_path / "kestrel-calls-999999999-abc"
    alive = tmp_path / f"kestrel-calls-{os.getpid()}-abc"
    others = tmp_path / "kestrel-calls-strange"
    for each in (gone, alive, others, tmp_path / "data"):
        each.mkdir()
        (each / "file").touch()
    (tmp_path / "kestrel-calls-999999999-link").symlink_to(tmp_path / "data")
    remove_left_over(tmp_path)
    assert not gone.exists()
    assert (alive / "file").exists()
    assert (others / "file").exists()
    assert (tmp_path / "data" / "file").exists(), "a link leads nowhere"


def test_what_has_begun_fails_when_all_is_cancelled_and_the_rest_is_cancelled() -> None:
    """A call has begun that was with an interpreter which ended, and waits for another one."""
    calls = object.__new__(Calls)
    begun, new = Call(1, "f", b"", ()), Call(2, "f", b"", ())
    assert begun.future.set_running_or_notify_cancel()
    calls._pending = deque([begun, new])
    calls.cancel_pending()
    assert isinstance(begun.future.exception(), CallFailed)
    assert new.future.cancelled()


class Looked(Calls):
    """Calls whose only interpreter is at a worker; what it is told is lost."""

    def __init__(self) -> None:
        job: Any = SimpleNamespace(id=3)
        self.of = _Job(job, 1)
        self.of.greeted = True
        self.interpreter = _Interpreter(self.of, 1, 5, b"key")
        self.interpreter.ready = True
        self._pending = deque()
        self._interpreters = {(3, 1): self.interpreter}
        self.said: list[str] = []
        self.tasks = [(1, 5)]
        self.meanwhile: Callable[[], None] = lambda: None
        self._jobs = {3: self.of}
        self._retries, self._key = 1, b"key"

    async def _open(self, job: Any) -> list[tuple[int, int]]:
        self.meanwhile()
        return self.tasks

    def _send_first(self, interpreter: Any) -> None:
        """A new interpreter hears nothing here."""

    def _say(self, interpreter: Any, header: dict[str, Any], blobs: Any = None) -> None:
        self.said.append(header["op"])

    def _plan_pump(self) -> None:
        """Nothing is handed out here."""


async def test_an_interpreter_whose_word_was_lost_gets_calls_again() -> None:
    """It was asked to give calls back, and the manager took the question along."""
    calls = Looked()
    calls.interpreter.returning = True
    calls.interpreter.has = {1: Call(1, "f", b"", ()), 2: Call(2, "f", b"", ())}
    await calls._look_at(calls.of)
    assert calls.interpreter.returning, "it may yet answer"
    calls.interpreter.heard_at -= 60.0
    await calls._look_at(calls.of)
    assert not calls.interpreter.returning
    assert calls.said == ["sync"]
    calls.interpreter.returning, calls.interpreter.has = True, {}
    await calls._look_at(calls.of)
    assert calls.interpreter.room() > 0


@pytest.mark.parametrize("says_farewell", [False, True])
async def test_an_interpreter_that_goes_while_it_is_asked_about_is_lost_once(
    says_farewell: bool,
) -> None:
    """The next attempt is heard while the manager is asked which interpreters there are."""
    calls = Looked()
    call = Call(1, "f", b"", ())
    calls.interpreter.has = {1: call}

    def meanwhile() -> None:
        if says_farewell:
            calls._on_bye(calls.interpreter, {}, [])
        calls._hear(TaskWrote(id="", job=3, task_id=1, attempt=6, data=b""))

    calls.meanwhile, calls.tasks = meanwhile, [(1, 6)]
    await calls._look_at(calls.of)
    assert call.losses == (0 if says_farewell else 1)
    assert list(calls._pending) == [call], "it would run twice"
