"""Inputs as tasks find them, on each rung that this machine has."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import rungs
from commandkit import command_spec
from test_execution import PATH

from kestrelctl.core.model.files.inputs import Input
from kestrelctl.core.model.files.parent_files import ParentFiles
from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.files.archive import pack
from kestrelctl.worker.addresses.address_reader import AddressReader
from kestrelctl.worker.connection.parent_file_questions import Left
from kestrelctl.worker.environments.task_environments import TaskEnvironments
from kestrelctl.worker.files.input_cache import InputCache
from kestrelctl.worker.files.preparation import Preparation
from kestrelctl.worker.run.executor import Completion
from kestrelctl.worker.run.process_executor import ProcessExecutor

ADA, BOB = "ada@users.example.org", "bob@users.example.org"


class Desk:
    """A worker's executor, and a share that is a directory of this machine."""

    def __init__(self, directory: Path, rung: str) -> None:
        self.stored = directory / "share"
        self.stored.mkdir()
        self.data = directory / "data"
        made = rungs.make_rung(rung, self.data)
        self.hides_files = made.hides_files
        self.ends: asyncio.Queue[Completion] = asyncio.Queue()
        self.gets = 0
        self.executor = ProcessExecutor(
            self.data / "tasks",
            self.ends.put_nowait,
            rung=made,
            any_workdir=True,
            preparation=lambda: Preparation(
                InputCache(self.data / "inputs", 1 << 20, self.get, AddressReader(()), "pool"),
                self.left,
                TaskEnvironments(self.data / "recipes").inside,
            ),
        )
        self._number = 0

    async def left(self, number: int, files: ParentFiles) -> Left:
        raise AssertionError("nobody wants files of other jobs here")

    async def get(self, stored: StoredFile, target: Path) -> None:
        self.gets += 1
        target.write_bytes((self.stored / stored.sha256).read_bytes())

    def put(self, name: str, data: bytes, *, executable: bool = False) -> Input:
        """A file that is stored."""
        sha256 = hashlib.sha256(data).hexdigest()
        (self.stored / sha256).write_bytes(data)
        piece = Piece(sha256=sha256, size_bytes=len(data), url="https://share/x")
        stored = StoredFile(sha256=sha256, size_bytes=len(data), pieces=(piece,))
        return Input(name=name, stored=stored, executable=executable)

    def put_directory(self, name: str, directory: Path) -> Input:
        """The same of an archive."""
        archive = self.stored / "archive"
        pack({each.name: each for each in directory.iterdir()}, archive)
        plain = self.put(name, archive.read_bytes())
        return Input(name=name, stored=plain.stored, directory=True)

    async def run(
        self, *argv: str, inputs: tuple[Input, ...] = (), owner: str = ADA, **more: object
    ) -> Completion:
        """Runs a task."""
        self._number += 1
        command = command_spec(
            self._number, env={"PATH": PATH}, argv=argv, inputs=inputs, owner=owner, **more
        )
        self.executor.start(command)
        return await asyncio.wait_for(self.ends.get(), 20)

    async def sh(self, script: str, *inputs: Input, **more: object) -> Completion:
        """Runs a script."""
        return await self.run("/bin/sh", "-c", script, inputs=inputs, **more)


@pytest.fixture(params=rungs.available())
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path, request.param)
    yield desk
    await desk.executor.close()


async def test_a_task_reads_its_inputs_and_so_does_its_cleanup(desk: Desk) -> None:
    data = desk.put("data", b"some data\n")
    ended = await desk.sh("cat data; ls -A", data, cleanup=("/bin/cat", "data"))
    assert (ended.stdout, ended.reason) == (b"some data\ndata\nsome data\n", "")
    ended = await desk.sh("ls -A")
    assert ended.stdout == b"", "the next task finds nothing"
    ended = await desk.sh("cat other", Input(name="other", stored=data.stored))
    assert ended.stdout == b"some data\n"
    assert desk.gets == 1


async def test_a_task_reads_its_standard_input_and_can_write_to_none(desk: Desk) -> None:
    read = desk.put("table", b"3\n1\n")
    script = "sort; cat; echo more >&0 || echo refused; ls -A"
    ended = await desk.sh(script, stdin=read, cleanup=("/bin/cat",), join=True)
    first, second, *rest = ended.stdout.decode().splitlines()
    assert (first, second, rest[-1], ended.reason) == ("1", "3", "refused", "")
    again = await desk.sh("cat", stdin=read)
    assert again.stdout == b"3\n1\n", "each task reads from the beginning"
    ended = await desk.sh("cat; echo end")
    assert ended.stdout == b"end\n", "one without reads nothing"
    assert desk.gets == 1


async def test_a_task_that_starts_elsewhere_has_its_standard_input(
    desk: Desk, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    read = desk.put("table", b"text\n")
    ended = await desk.sh("cat; pwd", stdin=read, workdir=str(elsewhere))
    assert ended.stdout.decode().splitlines()[:1] == ["text"]


async def test_a_program_can_be_an_input(desk: Desk) -> None:
    program = desk.put("go", b"#!/bin/sh\necho went $1\n", executable=True)
    ended = await desk.run("./go", "far", inputs=(program,))
    assert (ended.stdout, ended.reason) == (b"went far\n", "")


async def test_a_directory_is_there_with_all_that_is_in_it(desk: Desk, tmp_path: Path) -> None:
    directory = tmp_path / "tree"
    (directory / "sub").mkdir(parents=True)
    (directory / "sub" / "text").write_text("deep\n")
    (directory / "link").symlink_to("sub/text")
    (directory / "go").write_text("#!/bin/sh\ncat tree/link\n")
    (directory / "go").chmod(0o755)
    tree = desk.put_directory("tree", directory)
    ended = await desk.run("tree/go", inputs=(tree,))
    assert (ended.stdout, ended.reason) == (b"deep\n", "")


async def test_what_a_task_does_to_an_input_no_other_task_sees(desk: Desk) -> None:
    data = desk.put("data", b"right\n")
    tamper = 'f=$(readlink data); chmod u+w "$f"; { echo WRONG >"$f"; } 2>/dev/null; cat data'
    ended = await desk.sh(tamper, data)
    if desk.hides_files:
        assert ended.stdout == b"right\n", "it cannot even write to it"
    ended = await desk.sh("cat data", data)
    assert ended.stdout == b"right\n"
    assert desk.gets == (1 if desk.hides_files else 2)


async def test_a_task_sees_what_is_kept_of_its_owner_and_of_nobody_else(desk: Desk) -> None:
    hidden = b"hidden" if desk.hides_files else b"mine"  # one account runs all tasks there
    data = desk.put("data", b"mine\n")
    found = await desk.sh("readlink data", data)
    hers = found.stdout.decode().strip()
    look = f'cat "{hers}" 2>/dev/null || echo hidden; ls -A "$(dirname "{hers}")/.." | wc -l'
    assert (await desk.sh(look, data, owner=ADA)).stdout.split() == [b"mine", b"1"]
    ended = await desk.sh(look, data, owner=BOB)
    assert ended.stdout.split()[0] == hidden
    assert (await desk.sh(look)).stdout.split()[0] == hidden, "nor one without inputs"


async def test_a_task_removes_a_link_and_not_what_it_leads_to(desk: Desk) -> None:
    data = desk.put("data", b"kept\n")
    await desk.sh("rm data; echo mine >data; cat data", data)
    assert (await desk.sh("cat data", data)).stdout == b"kept\n"
    assert desk.gets == 1
