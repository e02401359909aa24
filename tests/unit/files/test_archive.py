"""Many files as one: what goes in comes out, and nothing gets out of its directory."""

from __future__ import annotations

import filecmp
import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import BinaryIO

import pytest

from kestrelctl.errors import FileChanged, FileDamaged, KestrelError, NoSpace, UsageError
from kestrelctl.files import archive
from kestrelctl.files.archive import members, pack, unpack, unpacked_bytes

MOST_BYTES = 100 << 20


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
    unpack(tmp_path / "all.tar", tmp_path / "copy", MOST_BYTES)
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
    unpack(tmp_path / "all.tar", tmp_path / "copy", MOST_BYTES)
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
    real = archive.add_file

    def add_file(opened: tarfile.TarFile, member: tarfile.TarInfo, stream: BinaryIO) -> None:
        real(opened, member, stream)
        growing.write_bytes(b"y" * 1001)

    monkeypatch.setattr(archive, "add_file", add_file)
    with pytest.raises(FileChanged, match="changed while it was packed"):
        pack({"growing": growing}, tmp_path / "all.tar")
    monkeypatch.setattr(archive, "add_file", lambda *_: growing.write_bytes(b""))
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
        unpack(packed, tmp_path / "here" / "inside", MOST_BYTES)
    assert not (tmp_path / "here").exists()


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no archive" * 100)
    with pytest.raises(FileDamaged) as refused:
        unpack(tmp_path / "text", tmp_path / "here", MOST_BYTES)
    assert "no archive" in str(refused.value.cause)
    whole = tmp_path / "whole.tar"
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    pack({"a": tmp_path / "a"}, whole)
    whole.write_bytes(whole.read_bytes()[:50_000])
    with pytest.raises(FileDamaged):
        unpack(whole, tmp_path / "here", MOST_BYTES)


# ---- what an archive says that it holds


def claiming(path: Path, size_bytes: int, *, format_of_map: str) -> Path:
    """An archive of 10 kB with a file of any size, of which nothing is data."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as opened:
        member = tarfile.TarInfo("file")
        if format_of_map == "pax":
            member.pax_headers = {"GNU.sparse.size": str(size_bytes), "GNU.sparse.numblocks": "0"}
            opened.addfile(member)
        else:
            member.size = size_bytes
            archive.add_file(opened, member, io.BytesIO(), [])
    return path


@pytest.mark.parametrize("format_of_map", ["gnu", "pax"])
def test_a_small_archive_that_claims_a_large_file_is_refused_before_anything_is_written(
    tmp_path: Path, format_of_map: str
) -> None:
    packed = claiming(tmp_path / "bomb.tar", 1 << 40, format_of_map=format_of_map)
    assert packed.stat().st_size <= 10_240
    with pytest.raises(KestrelError, match="is not unpacked") as refused:
        unpack(packed, tmp_path / "here", MOST_BYTES)
    assert refused.value.cause
    assert refused.value.hint
    assert not (tmp_path / "here").exists()
    if format_of_map == "gnu":
        assert unpacked_bytes(packed) == (1 << 40) + archive.MEMBER_BYTES


def test_sizes_are_added_up_with_a_block_for_each_name_and_each_directory_above(
    tmp_path: Path,
) -> None:
    packed = foreign(tmp_path / "all.tar", ("a/b/c", tarfile.REGTYPE, ""), ("a/d", b"0", ""))
    needed_bytes = 4 * archive.MEMBER_BYTES
    assert unpacked_bytes(packed) == needed_bytes
    with pytest.raises(NoSpace, match="is not unpacked"):
        unpack(packed, tmp_path / "here", needed_bytes - 1)
    assert not (tmp_path / "here").exists()
    unpack(packed, tmp_path / "here", needed_bytes)
    assert (tmp_path / "here" / "a" / "b" / "c").exists()


def test_no_more_names_are_unpacked_than_may_be_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST_MEMBERS", 3)
    for name in "abc":
        (tmp_path / name).touch()
    three = {name: tmp_path / name for name in "abc"}
    pack(three, tmp_path / "three.tar")
    unpack(tmp_path / "three.tar", tmp_path / "three", MOST_BYTES)
    with pytest.raises(UsageError, match="cannot be packed"):
        pack({**three, "d": tmp_path / "a"}, tmp_path / "four.tar")
    for each in ([("a", b"0", ""), ("b", b"0", ""), ("c/d", b"0", "")], [("a/b/c/d", b"0", "")]):
        packed = foreign(tmp_path / "four.tar", *each)
        with pytest.raises(FileDamaged) as refused:
            unpack(packed, tmp_path / "four", MOST_BYTES)
        assert "files and directories" in str(refused.value.cause)
    assert not (tmp_path / "four").exists()


def test_a_header_makes_nobody_read_what_it_claims(tmp_path: Path) -> None:
    """`tarfile` reads a name of any length into memory."""
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    packed = tmp_path / "long.tar"
    with packed.open("wb") as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT))
        file.truncate(1 << 31)
    with pytest.raises(FileDamaged) as refused:
        unpack(packed, tmp_path / "here", MOST_BYTES)
    assert refused.value.cause == "a name of 1,073,741,824 bytes is no path"


@pytest.mark.parametrize(
    "parts",
    [
        [(4096, 512), (0, 512)],
        [(0, 1024), (512, 512)],
        [(99_500, 1024)],
        [(0, 512), (1 << 62, 512)],
    ],
)
def test_a_map_that_fits_no_file_is_refused(tmp_path: Path, parts: list[tuple[int, int]]) -> None:
    packed = tmp_path / "map.tar"
    with tarfile.open(packed, "w", format=tarfile.GNU_FORMAT) as opened:
        member = tarfile.TarInfo("file")
        member.size = 100_000
        extents = [archive.Extent(*part) for part in parts]
        archive.add_file(opened, member, io.BytesIO(bytes(10_000)), extents)
    with pytest.raises(FileDamaged, match="is not unpacked"):
        unpack(packed, tmp_path / "here", MOST_BYTES)
    assert not (tmp_path / "here").exists()


def with_holes(path: Path, *parts: tuple[int, bytes], size_bytes: int) -> Path:
    with path.open("wb") as file:
        for start, data in parts:
            file.seek(start)
            file.write(data)
        file.truncate(size_bytes)
    return path


def allocated_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


GIB, MIB = 1 << 30, 1 << 20
MANY = [(2 * MIB * n, b"%05d" % n) for n in range(40)]


@pytest.mark.parametrize(
    ("parts", "size_bytes"),
    [
        ([], GIB),
        ([(0, b"first")], GIB),
        ([(GIB - 4, b"last")], GIB),
        ([(5 * MIB + 7, b"x" * 100_000)], 9 * GIB),  # more than fits into octal digits
        (MANY, 100 * MIB),
    ],
)
def test_holes_stay_holes_both_ways(
    tmp_path: Path, parts: list[tuple[int, bytes]], size_bytes: int
) -> None:
    source = with_holes(tmp_path / "source", *parts, size_bytes=size_bytes)
    if allocated_bytes(source) > MIB:
        pytest.skip("this file system has no holes")
    packed = tmp_path / "all.tar"
    pack({"a": source, "b" * 200: source}, packed)
    assert packed.stat().st_size < 2 * MIB
    unpack(packed, tmp_path / "copy", 3 * size_bytes)
    for name in ("a", "b" * 200):
        found = tmp_path / "copy" / name
        assert found.stat().st_size == size_bytes
        assert allocated_bytes(found) < MIB
        with found.open("rb") as file:
            for start, data in parts:
                file.seek(start)
                assert file.read(len(data)) == data
    with packed.open("rb") as opened:  # what other programs find in it
        assert [each.size_bytes for each in members(opened)] == [size_bytes] * 2
    with tarfile.open(packed) as theirs:
        assert [each.size for each in theirs] == [size_bytes] * 2


def test_a_file_with_holes_is_read_by_others(tmp_path: Path) -> None:
    source = with_holes(tmp_path / "source", *MANY, size_bytes=100 * MIB)
    pack({"file": source}, tmp_path / "all.tar")
    (tmp_path / "theirs").mkdir()
    subprocess.run(
        ["tar", "-xf", str(tmp_path / "all.tar"), "-C", str(tmp_path / "theirs")], check=True
    )
    assert filecmp.cmp(source, tmp_path / "theirs" / "file", shallow=False)


def test_holes_that_are_small_are_packed_as_zeros(tmp_path: Path) -> None:
    source = with_holes(tmp_path / "source", (0, b"a"), (MIB, b"b"), size_bytes=MIB + 1)
    pack({"file": source}, tmp_path / "all.tar")
    assert (tmp_path / "all.tar").stat().st_size > MIB
