"""Stores of earlier releases, in whose specs the program stood among the job's other fields."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from store_samples import FULL_SPEC, STORED

from kestrelctl.core.agent.held_attempt import HeldAttempt
from kestrelctl.core.model.files.inputs import Input
from kestrelctl.core.model.files.parent_files import ParentFiles
from kestrelctl.core.model.job.after import After
from kestrelctl.core.model.job.guest import GuestOf
from kestrelctl.core.model.job.light_spec import lightened
from kestrelctl.core.model.job.placeholders import Placeholders
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.store.sqlite import migrations
from kestrelctl.store.sqlite import store as sqlite
from kestrelctl.store.sqlite.earlier_specs import with_program
from kestrelctl.store.sqlite.store import SqliteStore

DUMP = Path(__file__).with_name("store_of_release_0_2_0.sql")
#: Job 1 of the dump, but for whose guest it is, as release 0.2.0 was given it.
FULL = msgspec.structs.replace(
    FULL_SPEC,
    program=msgspec.structs.replace(FULL_SPEC.program, placeholders=Placeholders.ALWAYS),
    after=(),
    after_each=0,
    guest=None,
)
#: Its second address was of letters that no share gives out.
STORED_THEN = msgspec.structs.replace(
    STORED,
    pieces=(
        STORED.pieces[0],
        msgspec.structs.replace(STORED.pieces[1], url="https://share.pool/ü?a=1&b=<2>"),
    ),
)
WITH_FILES = JobSpec(
    program=Program(
        argv=("sort", "numbers"),
        inputs=(Input(name="numbers", stored=STORED_THEN),),
        stdin=Input(name="list", stored=STORED_THEN),
        parent_files=(ParentFiles(name="p", job_id=2),),
        checkpoints=("state",),
        checkpoint_seconds=30.0,
        checkpoint_exit=85,
        environment=TaskEnvironment("science", "venv", "numpy==2.0\n"),
    ),
    count=2,
    after=(After(2, 2),),
)
ENDED = JobSpec(
    program=Program(argv=("sh", "-c", "x" * 3000), workdir="/srv", env={"A": "ü", "request": "1"})
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The database of a manager's directory as release 0.2.0 left it."""
    path = tmp_path / sqlite.DATABASE
    path.touch(mode=0o600)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(DUMP.read_text())
    return path


def test_the_jobs_of_release_0_2_0_are_what_they_were(path: Path) -> None:
    store = SqliteStore(path.parent)
    snapshot = store.open()
    specs = {found.record.job_id: found.record.spec for found in snapshot.jobs}
    guest = specs[1].guest
    whole = store.job(1)
    assert whole is not None
    assert specs[1] == lightened(whole.spec)
    assert msgspec.structs.replace(whole.spec, guest=None) == FULL
    assert specs[2] == JobSpec(program=Program(argv=("true",)), count=100)
    assert specs[3] == WITH_FILES
    ended = store.job(4)
    assert ended is not None
    assert ended.spec == ENDED
    assert isinstance(guest, GuestOf)
    assert (guest.pool, guest.user) == ("home.example", "grace@home.example")
    heads = {record.job_id: record.spec for record in store.jobs()}
    assert heads[3] == WITH_FILES.head()
    assert heads[4] == ENDED.head()
    store.close()


def test_an_attempt_of_another_pool_can_still_be_reported_there(path: Path) -> None:
    store = SqliteStore(path.parent)
    guest = store.open().jobs[0].record.spec.guest
    store.close()
    assert guest is not None
    held = msgspec.json.decode(guest.memo, type=HeldAttempt)
    assert held.account == "lent@workers.home.example"
    assert held.template.job_id == 8
    assert held.template.program == Program(
        argv=("crunch", "{}"), cleanup=("rm", "x"), stop_signal="INT", time_limit_seconds=90.0
    )


def test_a_spec_that_is_damaged_is_left_as_it_is(path: Path) -> None:
    store = SqliteStore(path.parent)
    snapshot = store.open()
    store.close()
    assert 5 not in [found.record.job_id for found in snapshot.jobs]
    with closing(sqlite3.connect(path)) as connection:
        [spec] = connection.execute("SELECT spec FROM specs WHERE job_id = 5").fetchone()
    assert spec == b'{"'


def test_a_process_that_dies_while_specs_are_rewritten_leaves_the_store_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows(path)
    seen: list[bytes | str] = []

    def dies_at_the_third(spec: bytes | str) -> bytes | str:
        seen.append(spec)
        if len(seen) == 3:
            os._exit(9)
        return with_program(spec)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(migrations, "with_program", dies_at_the_third)
        SqliteStore(path.parent).open()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    assert rows(path) == before
    store = SqliteStore(path.parent)
    assert len(store.open().jobs) == 3
    store.close()


def rows(path: Path) -> list[tuple[int, bytes]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT job_id, spec FROM specs ORDER BY job_id").fetchall()


def test_items_are_not_read_to_move_what_stands_beside_them() -> None:
    """They may be a gigabyte: they are copied byte by byte, however they are written."""
    items = '[ "a" ,"\\u0041", "b" ]'
    moved = with_program(f'{{"argv":["x"],"items":{items},"count":3}}'.encode())
    assert moved == f'{{"program":{{"argv":["x"]}},"items":{items},"count":3}}'.encode()


@pytest.mark.parametrize("memo", ['"!"', '"AP8="', "null", '"e30="', "17"])
def test_a_memo_that_cannot_be_read_takes_nothing_with_it(memo: str) -> None:
    guest = f'{{"pool":"home.example","memo":{memo}}}'
    moved = with_program(f'{{"argv":["x"],"guest":{guest}}}')
    assert moved == f'{{"program":{{"argv":["x"]}},"guest":{guest}}}'.encode()


@pytest.mark.parametrize("spec", [b"", b"\xff\x00", b"[1]", b"null", 17, None])
def test_what_is_no_spec_is_left_alone(spec: object) -> None:
    assert with_program(spec) is spec  # type: ignore[arg-type]
