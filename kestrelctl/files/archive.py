"""Many files as one: a tar archive that depends on nothing but what is in it.

What is in an archive is read here and nowhere else, and counted before anything of it is written.
`tarfile` reads a name, and the map of a file with holes, into memory as large as the archive says
that they are; so only the headers that `pack` writes are read, one by one, and checked.

A file with holes is a member of the old GNU format (`S`; "Sparse Formats" in the manual of GNU
tar): its map says where its data belongs. Its size counts with all holes filled, because a file
system without holes, or whoever copies the file, fills them.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from kestrelctl.errors import (
    NO_SPACE,
    FileChanged,
    FileDamaged,
    KestrelError,
    NoSpace,
    UsageError,
)
from kestrelctl.files.tree_links import leads_outside

#: In it, names are bytes, of any length, and files have any size.
_FORMAT: Final = tarfile.GNU_FORMAT
#: Two empty blocks after the last member. tarfile adds more of them, up to 10 KiB, as for a tape.
END_BYTES = 2 * tarfile.BLOCKSIZE
_ENCODING, _ERRORS = "utf-8", "surrogateescape"
#: The most members of an archive, with directories that names imply: twice what a task may leave.
MOST_MEMBERS = 200_000
#: The most bytes of all their names together, which are in memory at once.
_MOST_NAMES_BYTES = 64 << 20
#: No path is longer (PATH_MAX of Linux).
_MOST_NAME_BYTES = 4096
#: What each member takes of a disk besides its data: a block.
MEMBER_BYTES = 4096
#: A smaller hole is packed as the zeros that it reads as.
SMALLEST_HOLE_BYTES = 1 << 20
#: The most parts of one file between its holes; in a larger file only larger holes are left out.
_MOST_PARTS = 100_000
#: Larger numbers than `off_t` has are no sizes.
_LARGEST_BYTES = 2**63 - 1
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.GNUTYPE_SPARSE)
_KINDS = (*_FILES, tarfile.DIRTYPE, tarfile.SYMTYPE)
_LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_COPY_BYTES = 1 << 20
_PERMISSIONS = 0o777  # no set-user-ID where others unpack it
_SHORTER = "unexpected end of data"
_TOO_MANY = (
    f"more than {MOST_MEMBERS:,} files and directories are in it, or their names are too long"
)


def pack(entries: Mapping[str, Path], target: Path) -> None:
    """Writes files, directories and symbolic links into an archive.

    The same entries give the same bytes: names are sorted; times and owners are left out. A
    directory goes with all that is in it. A link stays a link and must stay inside the archive.

    Args:
        entries: by the name in the archive, with `/`; bytes that are not UTF-8 as `os.fsdecode`
            gives them.

    Raises:
        UsageError: an entry is missing, is no file, directory or link, or leads outside.
        FileChanged: a file was written to meanwhile.
        NoSpace: the disk is full.
        KestrelError: an entry cannot be read, or the archive cannot be written.
    """
    found: dict[str, Path] = {}
    for name, path in entries.items():
        if problem := _problem_with_name(name):
            raise UsageError(f"{path} cannot be packed as {name!r}", cause=problem)
        for below, each in _with_all_below(name, path):
            if found.setdefault(below, each) != each:
                raise UsageError(f"{each} and {found[below]} would both be {below!r}")
    if problem := too_many(found):
        raise UsageError(
            f"{target.name} cannot be packed",
            cause=problem,
            hint="give fewer files, or an archive of them that the task unpacks",
        )
    draft = target.with_name(f"{target.name}.part")
    try:
        with tarfile.open(
            draft, "w", format=_FORMAT, encoding=_ENCODING, errors=_ERRORS
        ) as archive:
            for name in sorted(found, key=lambda each: os.fsencode(each).split(b"/")):
                _add(archive, name, found[name])
            packed_bytes = archive.offset
        os.truncate(draft, packed_bytes + END_BYTES)
        draft.replace(target)
    except OSError as error:
        raise _unwritable(target, error) from None
    finally:
        draft.unlink(missing_ok=True)


class Extent(NamedTuple):
    """A part of a file that is no hole.

    Attributes:
        start: where it begins in the file, in bytes.
        size_bytes: its size.
    """

    start: int
    size_bytes: int


class ArchiveMember(NamedTuple):
    """A member of an archive, under one name.

    Attributes:
        kind: a type of `tarfile`.
        mode: its permissions.
        link: where a symbolic link points.
        size_bytes: that of a file, with its holes filled.
        data_at, data_bytes: where its data is in the archive.
        map_at: where the map of a file with holes is.
    """

    name: str
    kind: bytes
    mode: int
    link: str
    size_bytes: int
    data_at: int
    data_bytes: int
    map_at: int

    @property
    def is_file(self) -> bool:
        """Whether it is a file, with holes or without."""
        return self.kind in _FILES

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return self.kind == tarfile.SYMTYPE

    def extents(self, archive: BinaryIO) -> Iterator[Extent]:
        """The parts of a file that are no holes, in order; their data follows each other."""
        if self.kind == tarfile.GNUTYPE_SPARSE:
            yield from _sparse_map(archive, self.map_at)
        elif self.data_bytes:
            yield Extent(0, self.data_bytes)

    def copy_to(
        self, archive: BinaryIO, file: BinaryIO, check: Callable[[], None] = lambda: None
    ) -> None:
        """Writes a file from its archive into an empty one; its holes stay holes.

        Args:
            check: called before each piece; what it raises ends this.

        Raises:
            OSError: it cannot be written, or the archive cannot be read.
        """
        at = self.data_at
        for start, size_bytes in self.extents(archive):
            archive.seek(at)
            file.seek(start)
            left_bytes = size_bytes
            while left_bytes:
                check()
                piece = archive.read(min(_COPY_BYTES, left_bytes))
                if not piece:
                    raise OSError(errno.EIO, "the archive became shorter")
                file.write(piece)
                left_bytes -= len(piece)
            at += size_bytes
        if self.kind == tarfile.GNUTYPE_SPARSE:  # it may end with a hole
            file.truncate(self.size_bytes)


def members(archive: BinaryIO) -> list[ArchiveMember]:
    """All that an archive holds. Nothing in it leads outside, and no more is there than one may.

    Raises:
        FileDamaged: it is no archive, or holds what `pack` never writes.
        OSError: it cannot be read.
    """
    found: list[ArchiveMember] = []
    names: set[str] = set()
    names_bytes = 0
    try:
        for member in _read_members(archive):
            if problem := _problem_with_name(member.name):
                raise FileDamaged(f"{member.name!r}: {problem}")
            for name in _with_directories(member.name):
                if name in names:
                    break
                names.add(name)
                names_bytes += len(name)
                if len(names) > MOST_MEMBERS or names_bytes > _MOST_NAMES_BYTES:
                    raise FileDamaged(_TOO_MANY)
            found.append(member)
    except (tarfile.TarError, UnicodeError, ValueError) as error:
        raise FileDamaged(f"it is no archive, or damaged: {error}") from None
    if problem := _problem_with_members(found):
        raise FileDamaged(problem)
    return found


def unpacked_bytes(archive: Path) -> int:
    """The room that an archive may take on a disk: files with holes filled, a block for each name.

    Raises:
        FileDamaged: it is no archive that can be unpacked.
        KestrelError: it cannot be read.
    """
    try:
        with archive.open("rb") as opened:
            return _needed_bytes(_checked(archive, opened))
    except OSError as error:
        raise _unreadable(archive, error) from None


def unpack(archive: Path, directory: Path, most_bytes: int) -> None:
    """Writes what is in an archive below a directory, which is made if needed, and nowhere else.

    Args:
        most_bytes: as `unpacked_bytes` counts; of more nothing is written.

    Raises:
        FileDamaged: it is no archive, or holds what `pack` never writes; nothing was written.
        NoSpace: it is too large, and nothing was written; or the disk is full.
        KestrelError: it cannot be read, or the directory cannot be written.
    """
    try:
        with archive.open("rb") as opened:
            found = _checked(archive, opened)
            needed_bytes = _needed_bytes(found)
            if needed_bytes > most_bytes:
                raise NoSpace(
                    f"{archive} is not unpacked",
                    cause=f"it would take up to {needed_bytes:,} bytes; {most_bytes:,} are there"
                    " for it",
                    hint="make room on the disk, or send less in one archive",
                )
            made: set[str] = set()
            for member in found:
                _extract(opened, member, f"{directory}/{member.name}", made)
            _make_directory(str(directory), made)
            for member in reversed(found):  # a directory after all that is in it
                if member.kind == tarfile.DIRTYPE:
                    (directory / member.name).chmod(member.mode & _PERMISSIONS | stat.S_IRWXU)
    except OSError as error:
        raise _unwritable(directory, error) from None


def add_file(
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    source: BinaryIO,
    extents: Iterable[Extent] | None = None,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Adds a file to an archive in the GNU format.

    Args:
        member: with its name, its mode and its size, holes included.
        source: the file itself; or, with `extents`, what has their data one after the other.
        extents: its parts that are no holes, in order; None to find them in `source`.
        check: called before each piece; what it raises ends this.

    Raises:
        OSError: it cannot be written; or, without a number, the file has become shorter.
    """
    seeks = extents is None
    parts = list(_extents_of(source.fileno(), member.size) if extents is None else extents)
    data_bytes = sum(part.size_bytes for part in parts)
    _write(archive, _header(member, parts, data_bytes))
    for start, left_bytes in parts:
        if seeks:
            source.seek(start)
        while left_bytes:
            check()
            piece = source.read(min(_COPY_BYTES, left_bytes))
            if not piece:
                raise OSError(_SHORTER)
            _write(archive, piece)
            left_bytes -= len(piece)
    _write(archive, bytes(-data_bytes % tarfile.BLOCKSIZE))


def add_link(archive: tarfile.TarFile, name: str, link: str) -> None:
    """Adds a symbolic link to an archive.

    Args:
        link: where it points; it must not lead outside.

    Raises:
        OSError: it cannot be written.
    """
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = tarfile.SYMTYPE, link, _PERMISSIONS
    archive.addfile(member)


def too_many(names: Iterable[str]) -> str | None:
    """Explains why these files and their directories are too many for an archive; None if not."""
    found: set[str] = set()
    for each in names:
        found.update(_with_directories(each))
        if len(found) > MOST_MEMBERS:
            return _TOO_MANY
    return _TOO_MANY if sum(map(len, found)) > _MOST_NAMES_BYTES else None


def _checked(archive: Path, opened: BinaryIO) -> list[ArchiveMember]:
    try:
        return members(opened)
    except FileDamaged as error:
        raise FileDamaged(
            f"{archive} is not unpacked",
            cause=error.message,
            hint="it is damaged, or another program made it; send the files again",
        ) from None


def _needed_bytes(found: Iterable[ArchiveMember]) -> int:
    names = {name for member in found for name in _with_directories(member.name)}
    return sum(member.size_bytes for member in found) + MEMBER_BYTES * len(names)


def _with_directories(name: str) -> Iterator[str]:
    while name:
        yield name
        name = posixpath.dirname(name)


def _extract(opened: BinaryIO, member: ArchiveMember, target: str, made: set[str]) -> None:
    """Writes one of the members that have been checked into a directory of ours."""
    _make_directory(posixpath.dirname(target), made)
    if member.kind == tarfile.DIRTYPE:
        _make_directory(target, made)
    elif member.kind == tarfile.SYMTYPE:
        os.symlink(member.link, target)
    else:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            member.copy_to(opened, file)
            os.fchmod(descriptor, member.mode & _PERMISSIONS & ~0o022 | 0o600)


def _make_directory(directory: str, made: set[str]) -> None:
    """Makes a directory with those above it, and no system call for those made before."""
    if directory not in made:
        os.makedirs(directory, exist_ok=True)
        made.add(directory)


# ---- headers


def _read_members(archive: BinaryIO) -> Iterator[ArchiveMember]:
    """Yields the members of an archive, header by header; it reads nothing that was not counted."""
    end = archive.seek(0, os.SEEK_END)
    at = 0
    long: dict[bytes, str] = {}
    while True:
        block = _read(archive, at, tarfile.BLOCKSIZE)
        if not block.strip(b"\0"):
            return
        header = tarfile.TarInfo.frombuf(block, _ENCODING, _ERRORS)
        data_at, size_bytes = at + tarfile.BLOCKSIZE, header.size
        if header.type in _LONG:
            if not 0 < size_bytes <= _MOST_NAME_BYTES + 1 or header.type in long:
                raise FileDamaged(f"a name of {size_bytes:,} bytes is no path")
            written = _read(archive, data_at, size_bytes).rstrip(b"\0")
            long[header.type] = written.decode(_ENCODING, _ERRORS)
            at = data_at + _in_blocks(size_bytes)
            continue
        map_at = data_at - tarfile.BLOCKSIZE
        if header.type == tarfile.GNUTYPE_SPARSE:
            size_bytes = _number(block[483:495])
            data_at = _after_map(archive, map_at, header.size, size_bytes)
        elif header.type not in _KINDS:
            raise FileDamaged(f"{header.name!r} is neither a file, a directory nor a symbolic link")
        elif header.type not in _FILES and header.size:
            raise FileDamaged(f"{header.name!r} has data and is no file")
        if not (0 <= header.size <= end - data_at and 0 <= size_bytes <= _LARGEST_BYTES):
            raise FileDamaged(f"{header.name!r} is not all there")
        name = long.pop(tarfile.GNUTYPE_LONGNAME, header.name)
        if header.isdir():
            name = name.removesuffix("/")
        link = long.pop(tarfile.GNUTYPE_LONGLINK, header.linkname)
        mode = header.mode & _PERMISSIONS
        yield ArchiveMember(name, header.type, mode, link, size_bytes, data_at, header.size, map_at)
        at = data_at + _in_blocks(header.size)


def _read(archive: BinaryIO, at: int, size_bytes: int) -> bytes:
    archive.seek(at)
    found = archive.read(size_bytes)
    if len(found) < size_bytes:
        raise FileDamaged("it is no archive, or ends too early")
    return found


def _sparse_map(archive: BinaryIO, at: int) -> Iterator[Extent]:
    """The parts that a map names: four in the header, 21 in each block that follows."""
    block = _read(archive, at, tarfile.BLOCKSIZE)
    parts, more = block[386:482], block[482]
    while True:
        for start in range(0, len(parts), 24):
            if not parts[start]:
                break
            yield Extent(
                _number(parts[start : start + 12]), _number(parts[start + 12 : start + 24])
            )
        if not more:
            return
        at += tarfile.BLOCKSIZE
        block = _read(archive, at, tarfile.BLOCKSIZE)
        parts, more = block[:504], block[504]


def _after_map(archive: BinaryIO, at: int, data_bytes: int, size_bytes: int) -> int:
    """Checks a map, and returns where the data begins: parts in order, inside, and all the data."""
    end = mapped_bytes = 0
    for number, (start, part_bytes) in enumerate(_sparse_map(archive, at)):
        if start < end or part_bytes < 0 or number > _MOST_PARTS + 1:
            raise FileDamaged("the parts of a file are in no order, or too many")
        end, mapped_bytes = start + part_bytes, mapped_bytes + part_bytes
    if end > size_bytes or mapped_bytes != data_bytes:
        raise FileDamaged("the parts of a file are not what it has")
    at += tarfile.BLOCKSIZE
    more = _read(archive, at - tarfile.BLOCKSIZE, tarfile.BLOCKSIZE)[482]
    while more:
        more = _read(archive, at, tarfile.BLOCKSIZE)[504]
        at += tarfile.BLOCKSIZE
    return at


def _header(member: tarfile.TarInfo, parts: list[Extent], data_bytes: int) -> bytes:
    if data_bytes == member.size:
        return member.tobuf(_FORMAT, _ENCODING, _ERRORS)
    if not parts or parts[-1].start + parts[-1].size_bytes < member.size:
        parts = [*parts, Extent(member.size, 0)]  # a hole at the end, as GNU tar writes it
    size_bytes, member.size, member.type = member.size, data_bytes, tarfile.GNUTYPE_SPARSE
    written = bytearray(member.tobuf(_FORMAT, _ENCODING, _ERRORS))
    member.size = size_bytes
    mapped = [_as_field(part.start) + _as_field(part.size_bytes) for part in parts]
    header = written[-tarfile.BLOCKSIZE :]
    header[386:495] = (
        b"".join(mapped[:4]).ljust(96, b"\0") + bytes([len(mapped) > 4]) + _as_field(size_bytes)
    )
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    blocks = []
    for first in range(4, len(mapped), 21):
        more = bytes([len(mapped) > first + 21])
        blocks.append(b"".join(mapped[first : first + 21]).ljust(504, b"\0") + more + bytes(7))
    return bytes(written[: -tarfile.BLOCKSIZE] + header) + b"".join(blocks)


def _as_field(number: int) -> bytes:
    """A number as headers have it: octal, or 12 bytes of which the first says so."""
    return b"%011o\0" % number if number < 8**11 else b"\x80" + number.to_bytes(11, "big")


def _number(field: bytes) -> int:
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    return int(field.rstrip(b"\0 ") or b"0", 8)


def _in_blocks(size_bytes: int) -> int:
    return size_bytes + -size_bytes % tarfile.BLOCKSIZE


def _write(archive: tarfile.TarFile, data: bytes) -> None:
    assert archive.fileobj is not None
    archive.fileobj.write(data)
    archive.offset += len(data)


def _extents_of(file: int, size_bytes: int) -> Iterator[Extent]:
    """The parts of an open file between holes that are worth leaving out (lseek(2))."""
    smallest_bytes = max(SMALLEST_HOLE_BYTES, size_bytes // _MOST_PARTS)
    if size_bytes < smallest_bytes:
        yield Extent(0, size_bytes)
        return
    start = end = 0
    while end < size_bytes:
        try:
            data = os.lseek(file, end, os.SEEK_DATA)
        except OSError as error:  # ENXIO: there is only a hole; else the file system does not tell
            data = size_bytes if error.errno == errno.ENXIO else end
        data = min(data, size_bytes)
        if data - end >= smallest_bytes:
            if end > start:
                yield Extent(start, end - start)
            start = data
        try:
            end = os.lseek(file, data, os.SEEK_HOLE) if data < size_bytes else data
        except OSError:
            end = size_bytes
        end = min(end, size_bytes)
    if end > start:
        yield Extent(start, end - start)


def _problem_with_name(name: str) -> str | None:
    if not name or "\0" in name:
        return "a name has at least one character, and no zero byte"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "a name in an archive neither begins nor ends with / and has no . or .. in it"
    return None


def _with_all_below(name: str, path: Path) -> Iterator[tuple[str, Path]]:
    to_do = [(name, path)]
    while to_do:
        name, path = to_do.pop()
        yield name, path
        try:
            if path.is_dir() and not path.is_symlink():
                with os.scandir(path) as entries:
                    to_do += [(f"{name}/{each.name}", Path(each.path)) for each in entries]
        except OSError as error:
            raise _unreadable(path, error) from None


def _add(archive: tarfile.TarFile, name: str, path: Path) -> None:
    try:
        status = path.lstat()
        link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
    except FileNotFoundError:
        raise UsageError(f"{path} is not there") from None
    except OSError as error:
        raise _unreadable(path, error) from None
    member = tarfile.TarInfo(name)
    member.mode = status.st_mode & _PERMISSIONS
    if stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    elif link:
        if leads_outside(name, link):
            raise UsageError(
                f"the link {path} leads out of what is packed",
                cause=f"it points to {link}",
                hint="give the file that it points to, or leave the link out",
            )
        add_link(archive, name, link)
    elif stat.S_ISREG(status.st_mode):
        member.size = status.st_size
        _add_file(archive, member, path, status)
    else:
        raise UsageError(f"{path} is neither a file, a directory nor a symbolic link")


def _add_file(
    archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, status: os.stat_result
) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise _unreadable(path, error) from None
    changed = FileChanged(f"{path} changed while it was packed")
    with closing(os.fdopen(descriptor, "rb")) as stream:
        if _marks(os.fstat(descriptor)) != _marks(status):
            raise changed
        try:
            add_file(archive, member, stream)
        except OSError as error:
            if str(error) == _SHORTER:
                raise changed from None
            raise
        if _marks(os.fstat(descriptor)) != _marks(status):
            raise changed


def _marks(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _problem_with_members(found: Iterable[ArchiveMember]) -> str | None:
    """Explains why an archive is none of ours and could write elsewhere; None if it is fine."""
    kinds: dict[str, bytes] = {}
    for member in found:
        name = member.name
        if name in kinds:
            return f"{name!r} is in it twice"
        if member.kind == tarfile.SYMTYPE and leads_outside(name, member.link):
            return f"the link {name!r} leads outside: {member.link!r}"
        kinds[name] = member.kind
    for name in kinds:
        above = posixpath.dirname(name)
        while above:
            if kinds.get(above, tarfile.DIRTYPE) != tarfile.DIRTYPE:
                return f"{name!r} lies below {above!r}, which is no directory"
            above = posixpath.dirname(above)
    return None


def _unreadable(path: Path, error: OSError) -> KestrelError:
    return KestrelError(f"{path} cannot be read", cause=error.strerror or str(error))


def _unwritable(path: Path, error: OSError) -> KestrelError:
    if error.errno in NO_SPACE:
        return NoSpace(f"there is no space for {path}", cause=error.strerror)
    return KestrelError(f"{path} cannot be written", cause=error.strerror or str(error))
