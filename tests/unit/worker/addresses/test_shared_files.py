"""Inputs at `file:` addresses: what a worker reads of its machine, and what it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kestrelctl.core.model.files.inputs import Input
from kestrelctl.errors import FileChanged, KestrelError, NotAllowed, NotFound
from kestrelctl.worker.addresses import shared_files
from kestrelctl.worker.addresses.address_reader import AddressReader
from kestrelctl.worker.addresses.address_state import AddressState


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The directory that the operator has named, with a file and a directory in it."""
    found = tmp_path / "shared"
    (found / "model" / "lib").mkdir(parents=True)
    (found / "data").write_text("alpha")
    (found / "model" / "run").write_text("go")
    (found / "model" / "run").chmod(0o755)
    (found / "model" / "lib" / "text").write_text("text")
    (tmp_path / "password").write_text("secret")
    return found


def wanted(path: Path | str) -> Input:
    return Input(name="in", address=f"file://{path}", directory=str(path).endswith("/"))


async def read(
    path: Path | str, target: Path, *directories: Path, identity: str = "", own_user: bool = False
) -> None:
    """Has a worker read what is there, which shares these directories."""
    reader = AddressReader(directories, own_user=own_user)
    await reader.get(AddressState(wanted(path), {}, identity, "x"), target, lambda _: None)


async def test_a_file_below_a_named_directory_is_read(shared: Path, tmp_path: Path) -> None:
    await read(shared / "data", tmp_path / "got", tmp_path / "other", shared)
    assert (tmp_path / "got").read_text() == "alpha"


async def test_a_directory_is_read_with_its_programs_and_the_links_within_it(
    shared: Path, tmp_path: Path
) -> None:
    (shared / "model" / "again").symlink_to("run")
    (shared / "model" / "lib" / "up").symlink_to("../again")
    (shared / "model" / "out").symlink_to("../data")
    (shared / "model" / "secret").symlink_to(tmp_path / "password")
    (shared / "model" / "lib" / "through").symlink_to("../secret")
    os.mkfifo(shared / "model" / "fifo")
    await read(f"{shared}/model/", tmp_path / "got", shared)
    got = tmp_path / "got"
    names = {str(p.relative_to(got)) for p in got.rglob("*")}
    assert names == {"run", "lib", "lib/text", "again", "lib/up"}
    assert (got / "lib" / "up").readlink() == Path("../again")
    assert (got / "lib" / "up").read_text() == "go"
    assert os.access(got / "run", os.X_OK)
    assert not os.access(got / "lib" / "text", os.X_OK)


async def test_the_named_directory_itself_may_be_an_input(shared: Path, tmp_path: Path) -> None:
    await read(f"{shared}/", tmp_path / "got", shared)
    assert (tmp_path / "got" / "model" / "lib" / "text").read_text() == "text"


async def test_names_of_any_bytes_are_read(shared: Path, tmp_path: Path) -> None:
    strange = os.fsencode(shared) + b"/model/a\n\xe9%"
    Path(os.fsdecode(strange)).write_text("strange")
    await read(f"{shared}/model/a%0A%E9%25", tmp_path / "one", shared)
    assert (tmp_path / "one").read_text() == "strange"
    await read(f"{shared}/model/", tmp_path / "all", shared)
    assert b"a\n\xe9%" in os.listdir(os.fsencode(tmp_path / "all"))


async def test_nothing_else_of_the_machine_is_read(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "shared-not").mkdir()
    (tmp_path / "shared-not" / "x").touch()
    for path in (tmp_path / "password", tmp_path / "shared-not" / "x", f"{tmp_path}/"):
        with pytest.raises(NotAllowed, match="does not share"):
            await read(path, tmp_path / "got", shared)
    with pytest.raises(NotAllowed) as told:
        await read(shared / "data", tmp_path / "got")
    assert told.value.cause == "its operator has named no directory"
    assert not (tmp_path / "got").exists()


async def test_a_path_that_goes_up_is_none_whoever_sends_it(shared: Path, tmp_path: Path) -> None:
    for up in ("..", "%2e%2e"):
        with pytest.raises(KestrelError, match=r"no \. and no \.\."):
            await read(f"{shared}/{up}/password", tmp_path / "got", shared)


async def test_a_link_that_stays_inside_is_followed_and_one_that_leads_out_is_not(
    shared: Path, tmp_path: Path
) -> None:
    (shared / "inside").symlink_to("data")
    (shared / "outside").symlink_to(tmp_path / "password")
    (shared / "above").symlink_to(tmp_path)
    await read(shared / "inside", tmp_path / "got", shared)
    assert (tmp_path / "got").read_text() == "alpha"
    for path in (shared / "outside", shared / "above" / "password", f"{shared}/above/"):
        with pytest.raises(NotAllowed, match="does not share"):
            await read(path, tmp_path / "got", shared)


@pytest.mark.parametrize("swapped", ["data", "model"])
async def test_a_link_that_comes_after_the_look_is_not_followed(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    real = os.path.realpath
    (tmp_path / "run").write_text("secret")

    def swap(path: bytes) -> bytes:
        found = real(path)
        if not (shared / swapped).is_symlink() and path.startswith(os.fsencode(shared) + b"/"):
            (shared / swapped).rename(tmp_path / "away")
            (shared / swapped).symlink_to(tmp_path if swapped == "model" else tmp_path / "password")
        return found

    monkeypatch.setattr(shared_files.os.path, "realpath", swap)
    path = shared / "data" if swapped == "data" else shared / "model" / "run"
    with pytest.raises(KestrelError):
        await read(path, tmp_path / "got", shared)
    assert not (tmp_path / "got").exists()


async def test_only_what_everybody_may_read_is_read(shared: Path, tmp_path: Path) -> None:
    (shared / "data").chmod(0o640)
    with pytest.raises(NotAllowed, match="not for everybody"):
        await read(shared / "data", tmp_path / "got", shared)
    (shared / "model" / "lib").chmod(0o750)
    for path in (shared / "model" / "lib" / "text", f"{shared}/model/", f"{shared}/model/lib/"):
        with pytest.raises(NotAllowed, match="not for everybody"):
            await read(path, tmp_path / "got", shared)


async def test_who_runs_the_worker_for_himself_alone_has_all_that_is_his(
    shared: Path, tmp_path: Path
) -> None:
    (tmp_path / "password").chmod(0o600)
    await read(tmp_path / "password", tmp_path / "got", own_user=True)
    assert (tmp_path / "got").read_text() == "secret"


async def test_what_is_not_there_or_is_something_else_is_told(shared: Path, tmp_path: Path) -> None:
    os.mkfifo(shared / "fifo")
    for path, why in (
        (shared / "gone", "is not there"),
        (shared / "data" / "x", "is not there"),
        (shared / "model", "it ends with a slash"),
        (f"{shared}/data/", "is no directory"),
        (shared / "fifo", "cannot be read"),
    ):
        with pytest.raises(KestrelError, match=why):
            await read(path, tmp_path / "got", shared)
    with pytest.raises(NotFound):
        await AddressReader((shared,)).identity(wanted(shared / "gone"), {})


async def test_a_link_that_points_elsewhere_now_makes_a_directory_another(shared: Path) -> None:
    link = shared / "model" / "latest"
    reader = AddressReader((shared,))
    found = []
    for target in ("run", "lib/text", "run"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        found.append(await reader.identity(wanted(f"{shared}/model/"), {}))
    assert found[0] != found[1]
    assert found[0] == found[2]


@pytest.mark.parametrize("changed", ["data", "model/lib/text"])
async def test_what_is_changed_is_another_also_with_its_old_time(
    shared: Path, tmp_path: Path, changed: str
) -> None:
    path = shared / "data" if changed == "data" else f"{shared}/model/"
    reader = AddressReader((shared,))
    before = await reader.identity(wanted(path), {})
    assert await reader.identity(wanted(path), {}) == before
    state = (shared / changed).stat()
    (shared / changed).write_text("other"[: state.st_size])
    os.utime(shared / changed, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert await reader.identity(wanted(path), {}) != before
    with pytest.raises(FileChanged):
        await read(path, tmp_path / "got", shared, identity=before)


async def test_more_files_or_directories_than_may_be_are_refused(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_files, "MOST_FILES", 1)
    with pytest.raises(KestrelError, match="more than"):
        await read(f"{shared}/model/", tmp_path / "got", shared)
    monkeypatch.setattr(shared_files, "MOST_FILES", 10)
    monkeypatch.setattr(shared_files, "MOST_DEPTH", 0)
    with pytest.raises(KestrelError, match="in each other"):
        await read(f"{shared}/model/", tmp_path / "got", shared)
