"""Many files as one: what goes in comes out, and nothing gets out of its directory."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from kestrelctl.errors import FileChanged, FileDamaged, KestrelError, NoSpace, UsageError
from kestrelctl.files import archive
from kestrelctl.files.archive import pack, unpack


def tree(directory: Path) -> Path:
    """Some of everything that may be packed."""
    (directory / "sub" / "empty").mkdir(parents=True)
    (directory / "a").write_text("first")
    (directory / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (directory / "sub" / "run.sh").chmod(0o750)
    (directory / "sub" / "up").symlink_to("../a")
    (directory / "dangling").symlink_to("sub/nobody")
    for name in (b"new\nline", b"not-utf-8-\xff", b"x" * 250):
        (directory / os.fsdecode(name)).write_bytes(name)
    return directory


def contents(directory: Path) -> dict[str, object]:
    return {
        str(path.relative_to(directory)): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in directory.rglob("*")
    }


def test_what_was_packed_is_unpacked_with_any_name(tmp_path: Path) -> None:
    source = tree(tmp_path / "source")
    pack({each.name: each for each in source.iterdir()}, tmp_path / "all.tar")
    unpack(tmp_path / "all.tar", tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(source)
    assert (tmp_path / "copy" / "sub" / "run.sh").stat().st_mode & 0o777 == 0o750
    assert {path.name for path in tmp_path.iterdir()} == {"source", "copy", "all.tar"}


def test_it_needs_nothing_of_a_later_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian 12 has 3.11.2, where `extractall` knows no filter."""
    source = tree(tmp_path / "source")
    pack({"source": source}, tmp_path / "all.tar")
    monkeypatch.delattr(tarfile.TarFile, "extractall")
    unpack(tmp_path / "all.tar", tmp_path / "copy")
    assert contents(tmp_path / "copy" / "source") == contents(source)


def test_a_small_file_makes_a_small_archive(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("hi")
    pack({"a": tmp_path / "a"}, tmp_path / "small.tar")
    assert (tmp_path / "small.tar").stat().st_size == 512 + 512 + 1024


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        source = tree(tmp_path / name)
        os.utime(source / "a", (len(name), 7 if name == "one" else 8))
        entries = {each.name: each for each in source.iterdir()}
        order = sorted(entries, reverse=name == "two")
        pack({each: entries[each] for each in order}, tmp_path / f"{name}.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


@pytest.mark.parametrize("link", ["/etc/passwd", "..", "../x", "sub/../../x", "sub/../a", "./../x"])
def test_a_link_that_may_lead_outside_is_not_packed(tmp_path: Path, link: str) -> None:
    (tmp_path / "link").symlink_to(link)
    with pytest.raises(UsageError, match="leads out of what is packed"):
        pack({"link": tmp_path / "link"}, tmp_path / "all.tar")
    assert not (tmp_path / "all.tar").exists()


@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../b", "a//b", "a/", ".", "a\0b"])
def test_a_name_that_leads_elsewhere_is_not_packed(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be packed"):
        pack({name: tmp_path / "file"}, tmp_path / "all.tar")


def test_what_is_no_file_is_not_packed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="neither a file"):
        pack({"pipe": tmp_path / "pipe"}, tmp_path / "all.tar")
    with pytest.raises(UsageError, match="not there"):
        pack({"nobody": tmp_path / "nobody"}, tmp_path / "all.tar")


def test_two_files_have_no_one_name(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "a").touch()
    (tmp_path / "b").touch()
    with pytest.raises(UsageError, match="would both be"):
        pack({"d": tmp_path / "directory", "d/a": tmp_path / "b"}, tmp_path / "all.tar")


def test_a_file_that_changes_while_it_is_packed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = tmp_path / "growing"
    growing.write_bytes(b"x" * 1000)
    real = tarfile.TarFile.addfile

    def addfile(self: tarfile.TarFile, member: tarfile.TarInfo, stream: io.BytesIO) -> None:
        real(self, member, stream)
        growing.write_bytes(b"y" * 1001)

    monkeypatch.setattr(tarfile.TarFile, "addfile", addfile)
    with pytest.raises(FileChanged, match="changed while it was packed"):
        pack({"growing": growing}, tmp_path / "all.tar")
    monkeypatch.setattr(tarfile.TarFile, "addfile", lambda *_: growing.write_bytes(b""))
    with pytest.raises(FileChanged):
        pack({"growing": growing}, tmp_path / "all.tar")


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoSpace, match="no space"):
        raise archive._unwritable(tmp_path, OSError(28, "No space left on device"))
    with pytest.raises(KestrelError, match="cannot be written"):
        pack({}, tmp_path / "nowhere" / "all.tar")


def foreign(path: Path, *members: tuple[str, bytes, str]) -> Path:
    """An archive of members that another program made: name, type, where a link points."""
    with tarfile.open(path, "w") as opened:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            opened.addfile(member)
    return path


@pytest.mark.parametrize(
    "members",
    [
        [("../out", tarfile.REGTYPE, "")],
        [("/tmp/out", tarfile.REGTYPE, "")],
        [("a/../../out", tarfile.REGTYPE, "")],
        [("device", tarfile.CHRTYPE, "")],
        [("pipe", tarfile.FIFOTYPE, "")],
        [("hard", tarfile.LNKTYPE, "/etc/passwd")],
        [("link", tarfile.SYMTYPE, "/etc")],
        [("link", tarfile.SYMTYPE, "../out")],
        [("link", tarfile.SYMTYPE, "sub"), ("link/file", tarfile.REGTYPE, "")],
        [("file", tarfile.REGTYPE, ""), ("file", tarfile.SYMTYPE, "sub")],
        # Each of the two stays inside by its words.
        [("a/b/x", tarfile.SYMTYPE, "d/../out"), ("a/b/d", tarfile.SYMTYPE, "../..")],
    ],
)
def test_what_could_write_elsewhere_is_not_unpacked(
    tmp_path: Path, members: list[tuple[str, bytes, str]]
) -> None:
    packed = foreign(tmp_path / "foreign.tar", ("fine", tarfile.REGTYPE, ""), *members)
    with pytest.raises(FileDamaged, match="is not unpacked"):
        unpack(packed, tmp_path / "here" / "inside")
    assert not (tmp_path / "here").exists()


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no archive" * 100)
    with pytest.raises(FileDamaged, match="no archive"):
        unpack(tmp_path / "text", tmp_path / "here")
    whole = tmp_path / "whole.tar"
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    pack({"a": tmp_path / "a"}, whole)
    whole.write_bytes(whole.read_bytes()[:50_000])
    with pytest.raises(FileDamaged):
        unpack(whole, tmp_path / "here")
