"""Items and long programs lie in a store once, as long as a job names them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from store_samples import FULL_SPEC, job

from kestrelctl.core.model.job.light_spec import Apart
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import JobForgotten
from kestrelctl.errors import KestrelError
from kestrelctl.store.long_parts import PIECE_CHARACTERS, PIECE_ITEMS
from kestrelctl.store.postgresql.store import PostgresqlStore
from kestrelctl.store.sqlite import migrations
from kestrelctl.store.sqlite import store as sqlite
from kestrelctl.store.sqlite.store import SqliteStore

ITEMS = tuple(f"item {n}" for n in range(2_500))
WORDS = ("word",) * 1_000
LONG = JobSpec(program=Program(argv=("run", "{}", *WORDS)), count=len(ITEMS), items=ITEMS)


def texts(store: SqliteStore | PostgresqlStore) -> int:
    """How many different lists and programs it has."""
    [found] = store._reader.execute("SELECT count(DISTINCT digest) FROM texts").fetchone()
    assert isinstance(found, int)
    return found


async def test_equal_ones_are_stored_once(whole: SqliteStore | PostgresqlStore) -> None:
    await whole.commit([job(1, spec=LONG)])
    before = whole._reader.execute("SELECT sum(length(body)) FROM texts").fetchone()
    await whole.commit([job(n, spec=replace(LONG, name=f"run {n}")) for n in range(2, 20)])
    assert whole._reader.execute("SELECT sum(length(body)) FROM texts").fetchone() == before
    found = whole.job(7)
    assert found is not None
    assert found.spec == replace(LONG, name="run 7")


async def test_they_go_with_the_last_job_that_has_them(
    whole: SqliteStore | PostgresqlStore,
) -> None:
    other = replace(LONG, items=ITEMS[::-1])
    await whole.commit([job(1, spec=LONG), job(2, spec=LONG), job(3, spec=other)])
    assert texts(whole) == 3
    await whole.commit([JobForgotten(1)])
    assert texts(whole) == 3
    await whole.commit([JobForgotten(2)])
    assert texts(whole) == 2
    third = whole.job(3)
    assert third is not None
    assert third.spec == other
    await whole.commit([JobForgotten(3)])
    assert texts(whole) == 0
    assert whole._reader.execute("SELECT count(*) FROM apart").fetchone() == (0,)


async def test_a_job_that_begins_when_the_last_one_with_its_parts_goes_has_them(
    whole: SqliteStore | PostgresqlStore,
) -> None:
    await whole.commit([job(1, spec=LONG)])
    await whole.commit([JobForgotten(1), job(2, spec=LONG), JobForgotten(2), job(3, spec=LONG)])
    found = whole.job(3)
    assert found is not None
    assert found.spec == LONG


async def test_pieces_are_neither_many_nor_large(whole: SqliteStore | PostgresqlStore) -> None:
    items = (*ITEMS, *("x" * 40_000 for _ in range(9)))
    await whole.commit([job(spec=replace(LONG, items=items, count=len(items)))])
    rows = whole._reader.execute(
        "SELECT first, body FROM texts JOIN apart ON digest = items ORDER BY first"
    ).fetchall()
    pieces = [msgspec.json.decode(body, type=list[str]) for _, body in rows]
    assert [item for piece in pieces for item in piece] == list(items)
    assert [first for first, _ in rows] == [
        sum(map(len, pieces[:place])) for place in range(len(pieces))
    ]
    assert len(pieces) == 3 + 4
    assert max(map(len, pieces)) == PIECE_ITEMS
    assert max(sum(map(len, piece[:-1])) for piece in pieces) < PIECE_CHARACTERS


async def test_items_are_found_without_a_walk(in_sqlite: SqliteStore) -> None:
    await in_sqlite.commit(
        [job(n, spec=replace(LONG, items=ITEMS[n:], count=2_500 - n)) for n in range(1, 40)]
    )
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 10

    in_sqlite._reader.set_progress_handler(count, 10)
    assert await in_sqlite.items(20, 2_000) is not None
    assert steps < 200


async def test_a_start_reads_no_items(in_sqlite: SqliteStore) -> None:
    await in_sqlite.commit([job(spec=LONG)])
    in_sqlite.close()
    read: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        connect = in_sqlite._connect

        def traced() -> sqlite3.Connection:
            found = connect()
            found.set_trace_callback(read.append)
            return found

        patch.setattr(in_sqlite, "_connect", traced)
        [found] = in_sqlite.open().jobs
    assert found.record.spec.items is None
    assert read
    assert not any("texts" in statement for statement in read)


DAMAGES = [
    "UPDATE texts SET body = x'ff'",
    "DELETE FROM texts",
    "UPDATE apart SET items = x'00', program = x'00'",
]


@pytest.mark.parametrize("statement", DAMAGES)
async def test_what_is_damaged_is_said_by_whoever_reads_it(
    in_sqlite: SqliteStore, statement: str
) -> None:
    await in_sqlite.commit([job(1, spec=LONG), job(2)])
    in_sqlite._writer.execute(statement)
    with pytest.raises(KestrelError, match="job 1 cannot be read"):
        in_sqlite.job(1)
    with pytest.raises(KestrelError, match="the program of job 1 cannot be read"):
        await in_sqlite.program(1)
    if "ff" in statement:
        with pytest.raises(KestrelError, match="items of job 1 cannot be read"):
            await in_sqlite.items(1, 0)
    else:
        assert await in_sqlite.items(1, 0) is None
    assert in_sqlite.job(2) == job(2)


@pytest.mark.parametrize("change", ["item_count = 7", "spec_bytes = 'many'", "spec_bytes = -1"])
async def test_a_job_that_cannot_be_so_is_set_aside_at_the_start(
    in_sqlite: SqliteStore, change: str
) -> None:
    await in_sqlite.commit([job(1, spec=LONG), job(2)])
    in_sqlite._writer.execute(f"UPDATE apart SET {change}")
    in_sqlite.close()
    assert [found.record.job_id for found in in_sqlite.open().jobs] == [2]
    assert list(in_sqlite.damaged) == [1]


# -- stores of before ------------------------------------------------------------------------------


def version_31(data_dir: Path, specs: dict[int, bytes]) -> None:
    """A database as it was when specs had their items in them."""
    data_dir.mkdir(parents=True)
    path = data_dir / sqlite.DATABASE
    old = sqlite3.connect(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:31])
        migrations.migrate(old, path)
    for job_id, spec in specs.items():
        old.execute(
            "INSERT INTO jobs (state, cancelling, cursor, done, failed, lost, cancelled, job_id,"
            " owner, submitted_at) VALUES ('active', 0, 0, 0, 0, 0, 0, ?, 'ada', 1.5)",
            (job_id,),
        )
        old.execute("INSERT INTO specs VALUES (?, ?)", (job_id, spec))
        old.execute("INSERT INTO heads VALUES (?, ?)", (job_id, b'{"program":{"argv":["x"]}}'))
    old.execute("UPDATE pool SET last_job_id = 9")
    old.commit()
    old.close()


async def test_items_of_earlier_versions_are_taken_out_and_all_else_stays(tmp_path: Path) -> None:
    full = replace(FULL_SPEC, items=('"', "\0 ü\n\u2028", "{}"), guest=None)
    service = replace(LONG, items=None, service=True, count=2)
    specs = {1: LONG, 2: full, 3: LONG, 4: service, 5: JobSpec(program=Program(argv=("true",)))}
    encoded = {job_id: msgspec.json.encode(spec) for job_id, spec in specs.items()}
    version_31(tmp_path / "data", encoded | {6: b'{"items":["a"', 7: b"\xff", 8: b'{"items":3}'})
    store = SqliteStore(tmp_path / "data")
    found = {each.record.job_id: each for each in store.open().jobs}
    assert list(found) == [1, 2, 3, 4, 5]
    assert sorted(store.damaged) == [6, 7, 8]
    assert [each.record.spec.items for each in found.values()] == [None] * 5
    assert found[1].apart == Apart(spec_bytes=len(encoded[1]), items=True, program=False)
    assert found[5].apart is None
    for job_id, spec in specs.items():
        record = store.job(job_id)
        assert record is not None
        assert record.spec == spec
        assert await store.program(job_id) == spec.program
    window = await store.items(3, 2_499)
    assert window is not None
    assert (window.items[-1], window.total) == ("item 2499", 2_500)
    assert texts(store) == 2
    # What a service was sent long ago stays whole when it grows.
    await store.commit([job(4, spec=replace(service, program=service.program.cut(), count=3))])
    record = store.job(4)
    assert record is not None
    assert record.spec == replace(service, count=3)
    store.close()
