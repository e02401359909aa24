"""Functions of a program run at a real pool: what comes back, and what happens when things fail."""

from __future__ import annotations

import functools
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import psutil
import pytest
from msgspec.structs import replace
from rungs import why_not
from test_local_pool import Home, home  # noqa: F401  (a fixture)

from kestrelctl.access.context import find_context
from kestrelctl.client.blocking import Client
from kestrelctl.client.calls import CallFailed, RemoteError, RemoteTraceback
from kestrelctl.client.executor import KestrelExecutor
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.errors import UsageError
from kestrelctl.local.pool_state import pool_directory, read_state

pytestmark = pytest.mark.timeout(180)
#: Interpreters cannot import what pytest has collected.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def pool(home: Home) -> Home:  # noqa: F811
    home.run("up")
    return home


@pytest.fixture
def executor(pool: Home) -> Iterator[KestrelExecutor]:
    with KestrelExecutor(prints=True) as executor:
        yield executor


def test_results_come_in_order_and_keywords_reach_the_function(executor: KestrelExecutor) -> None:
    assert list(executor.map(operator.mul, range(5000), range(5000))) == [
        n * n for n in range(5000)
    ]
    assert executor.submit(dict, timeout=1, key=2, fn=3).result() == {
        "timeout": 1, "key": 2, "fn": 3,
    }  # fmt: skip
    values: list[Any] = [None, -(10**40), 1.5, "ä", b"\0", (1, [2]), {3: {4}}, {"a": [1]}, 2**70]
    assert list(executor.map(lambda value: value, values)) == values
    assert [*map(type, executor.map(lambda value: value, values))] == [*map(type, values)]
    assert executor.progress() == {"done": 5019, "waiting": 0, "interpreters": 2}
    assert "5,019 done" in repr(executor)
    assert 'value="5019"' in executor._repr_html_()
    assert executor._max_workers == 2


def test_what_is_large_travels_both_ways_and_what_is_shared_travels_once(
    executor: KestrelExecutor,
) -> None:
    data = os.urandom(10 << 20)
    assert executor.submit(operator.add, data, b"x").result() == data + b"x"
    table = executor.share({n: str(n) for n in range(100_000)})

    def found(number: int) -> str:
        return table[number]  # type: ignore[index, no-any-return]

    assert list(executor.map(found, range(1000))) == [str(n) for n in range(1000)]
    assert executor.submit(operator.getitem, table, 7).result() == "7"
    with pytest.raises(UsageError, match="in its calls only"):
        __import__("pickle").dumps(table)


def test_what_is_large_goes_by_the_file_share_where_interpreters_see_no_files_of_ours(
    pool: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def far_away(name: str) -> Client:
        return Client(name, finds=lambda of: replace(find_context(of), own_directories=False))

    monkeypatch.setattr("kestrelctl.client.executor.Client", far_away)
    data = os.urandom(3 << 20)
    with KestrelExecutor(python=sys.executable) as executor:
        parcels = executor._calls._parcels
        fetched: list[int] = []
        reading = parcels.fetched

        async def counted(stored: StoredFile) -> bytes:
            fetched.append(stored.size_bytes)
            return await reading(stored)

        monkeypatch.setattr(parcels, "fetched", counted)
        assert list(executor.map(operator.add, [data] * 10, [b"x"] * 10)) == [data + b"x"] * 10
        assert len(fetched) == 10
        table = executor.share(data)
        assert list(executor.map(operator.getitem, [table] * 20, range(20))) == list(data[:20])
        assert all(each.fetches for each in executor._calls._interpreters.values())


def test_an_exception_comes_back_with_the_place_where_it_was_raised(
    executor: KestrelExecutor,
) -> None:
    def fails() -> None:
        print("before it fails")
        raise KeyError("nothing like it")

    future = executor.submit(fails)
    error = future.exception()
    assert isinstance(error, KeyError)
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "in fails" in str(error.__cause__)
    assert "kestrel>" not in str(error.__cause__), "its own frames are no news"
    assert future.printed == "before it fails\n"  # type: ignore[attr-defined]


class Unsendable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("needs two")
        self.lock = threading.Lock()


def _raises_unsendable() -> None:
    raise Unsendable(1, 2)


def _forks() -> str:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return "parent"
    return "child"


def _recursion() -> None:
    with KestrelExecutor():
        pass


def test_what_cannot_be_sent_fails_alone(executor: KestrelExecutor) -> None:
    lock = threading.Lock()
    cannot = executor.submit(lambda: lock)
    argument = executor.submit(abs, lock)
    generator = executor.submit(lambda: (n for n in range(3)))
    strange = executor.submit(_raises_unsendable)
    missing = executor.submit(functools.partial(__import__, "no_such_module"))
    leaves = executor.submit(sys.exit, 3)
    again = executor.submit(_recursion)
    good = executor.submit(abs, -3)
    for future in (cannot, argument):
        assert isinstance(future.exception(), TypeError)
        assert "the call cannot be sent" in str(future.exception())
    assert "a generator, cannot be sent back" in str(generator.exception())
    assert isinstance(strange.exception(), RemoteError)
    assert str(strange.exception()) == "Unsendable: needs two"
    assert isinstance(missing.exception(), ModuleNotFoundError)
    assert isinstance(leaves.exception(), SystemExit)
    assert "a call cannot make an executor" in str(again.exception())
    assert good.result() == 3


def test_a_call_that_forks_answers_once(executor: KestrelExecutor) -> None:
    assert [executor.submit(_forks).result() for _ in range(5)] == ["parent"] * 5


def test_a_call_that_ends_its_interpreter_harms_no_other(executor: KestrelExecutor) -> None:
    def work(number: int) -> int:
        if number == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 60:
            os._exit(3)
        return number

    futures = {executor.submit(work, number): number for number in range(100)}
    assert len(futures) == 100
    for future in as_completed(futures):
        number = futures[future]
        if number in (40, 60):
            assert isinstance(future.exception(), CallFailed)
            assert "2 interpreters ended while running this call" in str(future.exception())
        else:
            assert future.result() == number


def test_a_call_over_its_time_ends_and_others_behind_it_go_on(pool: Home) -> None:
    with KestrelExecutor(1, call_seconds=1.0) as executor:
        slow = executor.submit(time.sleep, 100)
        others = [executor.submit(abs, -n) for n in range(20)]
        assert isinstance(slow.exception(), TimeoutError)
        assert "longer than 1 s" in str(slow.exception())
        assert [each.result() for each in others] == list(range(20))


def test_a_call_that_takes_too_much_memory_is_told_why(pool: Home) -> None:
    with KestrelExecutor(1, memory="300M") as executor:

        def grows() -> int:
            held = []
            while True:
                held.append(b"x" * (8 << 20))
                time.sleep(0.01)

        error = executor.submit(grows).exception()
        assert isinstance(error, CallFailed)
        assert "memory" in str(error.cause)
        assert executor.submit(abs, -1).result() == 1


def test_what_is_printed_without_being_asked_for_goes_nowhere(pool: Home) -> None:
    with KestrelExecutor(1) as executor:

        def prints() -> str:
            for _ in range(200):
                print("x" * (1 << 20))
            return "done"

        assert executor.submit(prints).result() == "done"


def test_another_python_is_refused_before_a_function_is_loaded(pool: Home) -> None:
    script = pool.work / "python-of-another-version"
    script.write_text(
        f"#!/bin/sh\nshift\nexec {sys.executable} -c "
        '"import sys; sys.version_info = (3, 99, 1)\n$1"\n'
    )
    script.chmod(0o755)
    with KestrelExecutor(python=str(script)) as executor:
        error = executor.submit(abs, -1).exception()
        assert isinstance(error, CallFailed)
        assert "is Python 3.99.1" in str(error.cause)


def test_a_worker_without_that_python_is_told(pool: Home) -> None:
    with KestrelExecutor(python="no-such-python") as executor:
        error = executor.submit(abs, -1).exception()
        assert isinstance(error, CallFailed)
        assert error.message == "no interpreter could be started"
        assert "no-such-python" in str(error.cause)


def test_options_that_no_worker_has_fail_and_wrong_ones_are_refused(pool: Home) -> None:
    with KestrelExecutor(cpus=1000) as executor:
        error = executor.submit(abs, -1).exception()
        assert isinstance(error, CallFailed)
        assert "no worker could ever run an interpreter" in str(error)
    with pytest.raises(UsageError):
        KestrelExecutor(memory="many")
    with pytest.raises(UsageError):
        KestrelExecutor(0)


def test_modules_of_ones_own_travel_where_they_are_named(pool: Home) -> None:
    module = ModuleType("of_my_own")
    exec("def twice(x):\n    return 2 * x\n", module.__dict__)
    sys.modules["of_my_own"] = module
    try:
        with KestrelExecutor(by_value=[module]) as executor:
            assert executor.submit(module.twice, 4).result() == 8
        with KestrelExecutor() as executor:
            assert isinstance(executor.submit(module.twice, 4).exception(), ModuleNotFoundError)
    finally:
        del sys.modules["of_my_own"]


def test_all_results_come_though_manager_and_worker_are_killed(pool: Home) -> None:
    with KestrelExecutor() as executor:

        def work(number: int) -> int:
            time.sleep(0.01)
            return number

        futures = [executor.submit(work, number) for number in range(600)]
        for place, future in enumerate(futures):
            assert future.result(100) == place
            if place in (100, 300):
                state = read_state(pool_directory("default"))
                assert state is not None
                victim = psutil.Process(state.manager_pid)
                if place == 300:
                    (victim,) = psutil.Process(state.worker_pids[0]).children()
                victim.kill()


def test_a_buffer_bounds_what_is_in_hand(executor: KestrelExecutor) -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(200):
            taken.append(number)
            yield number

    results = executor.map(abs, numbers(), buffersize=10)
    assert len(taken) == 10
    assert next(results) == 0
    assert len(taken) == 11
    assert list(results) == list(range(1, 200))


def test_it_belongs_to_one_process_and_ends_once(pool: Home) -> None:
    with KestrelExecutor() as executor:
        threads = [
            threading.Thread(target=lambda: executor.submit(abs, -1).result()) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        child = os.fork()
        if not child:
            try:
                executor.submit(abs, -1)
            except UsageError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        late = executor.submit(time.sleep, 0.2)
        executor.shutdown(wait=False)
        with pytest.raises(RuntimeError, match="shut down"):
            executor.submit(abs, -1)
        assert late.result() is None


def test_an_error_in_the_block_ends_what_runs(pool: Home) -> None:
    executor = KestrelExecutor()
    futures = [executor.submit(time.sleep, 1000) for _ in range(10)]
    with pytest.raises(ZeroDivisionError), executor:
        raise ZeroDivisionError
    assert all(each.done() for each in futures)


def test_interpreters_end_when_they_are_idle_and_come_again(pool: Home) -> None:
    with KestrelExecutor(1, idle_seconds=0.2) as executor:
        first = executor.submit(os.getpid).result()
        deadline = time.monotonic() + 60
        while executor.progress()["interpreters"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert executor.submit(os.getpid).result() != first


@pytest.mark.parametrize("rung", ["namespace", "bubblewrap"])
def test_calls_run_inside_what_isolates_tasks(home: Home, rung: str) -> None:  # noqa: F811
    if why_not(rung):
        pytest.skip(why_not(rung))
    told = subprocess.run(
        [sys.executable, "-m", "kestrelctl", "up", "--isolation", rung],
        env=home.env, cwd=home.work, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    python = Path("/usr/bin/python{}.{}".format(*sys.version_info))  # others are hidden there
    if not python.exists():
        pytest.skip(f"this machine has no {python}")
    with KestrelExecutor(python=str(python)) as executor:
        data = b"x" * (1 << 20)
        assert executor.submit(len, data).result() == 1 << 20
        assert executor.submit(lambda: data).result() == data
        assert executor.submit(os.path.exists, str(Path.home() / ".ssh")).exception() is None
