"""Many files as one: a tar archive that depends on nothing but what is in it."""

from __future__ import annotations

import errno
import os
import posixpath
import shutil
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import dropwhile
from pathlib import Path

from kestrelctl.errors import FileChanged, FileDamaged, KestrelError, NoSpace, UsageError

#: Names are bytes in it, of any length, and files of any size.
_FORMAT = tarfile.GNU_FORMAT
#: After the last member: two empty blocks. tarfile adds more of them, up to 10 KiB, as for a tape.
END_BYTES = 2 * tarfile.BLOCKSIZE
_ENCODING, _ERRORS = "utf-8", "surrogateescape"
_KINDS = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE)
_COPY_BYTES = 1 << 20
_PERMISSIONS = 0o777  # no set-user-ID where others unpack it


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
        KestrelError: it cannot be read, or the archive not be written.
    """
    found: dict[str, Path] = {}
    for name, path in entries.items():
        if problem := _problem_with_name(name):
            raise UsageError(f"{path} cannot be packed as {name!r}", cause=problem)
        for below, each in _with_all_below(name, path):
            if found.setdefault(below, each) != each:
                raise UsageError(f"{each} and {found[below]} would both be {below!r}")
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


def unpack(archive: Path, directory: Path) -> None:
    """Writes what is in an archive below a directory, which is made if needed, and nowhere else.

    Raises:
        FileDamaged: it is no archive, or holds what `pack` never writes; nothing was written.
        NoSpace: the disk is full.
        KestrelError: it cannot be read, or the directory not be written.
    """
    try:
        with tarfile.open(archive, "r:", encoding=_ENCODING, errors=_ERRORS) as opened:
            members = opened.getmembers()
            if problem := _problem_with_members(members):
                raise FileDamaged(f"{archive} is not unpacked", cause=problem)
            directory.mkdir(parents=True, exist_ok=True)
            for member in members:
                _extract(opened, member, directory / member.name)
            for member in reversed(members):  # a directory after all that is in it
                if member.isdir():
                    (directory / member.name).chmod(member.mode & _PERMISSIONS | stat.S_IRWXU)
    except tarfile.TarError as error:
        raise FileDamaged(
            f"{archive} is no archive that can be unpacked", cause=str(error)
        ) from None
    except OSError as error:
        raise _unwritable(directory, error) from None


def _extract(opened: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Writes one of the members that have been looked at; into a directory of ours.

    `TarFile.extractall` has no filter before Python 3.11.4, and Debian 12 has 3.11.2.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        target.mkdir(exist_ok=True)
    elif member.issym():
        target.symlink_to(member.linkname)
    else:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with closing(os.fdopen(descriptor, "wb")) as file:
            source = opened.extractfile(member)
            if source is not None:
                shutil.copyfileobj(source, file, _COPY_BYTES)
            os.fchmod(descriptor, member.mode & _PERMISSIONS & ~0o022 | 0o600)


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
        if _leads_outside(name, link):
            raise UsageError(
                f"the link {path} leads out of what is packed",
                cause=f"it points to {link}",
                hint="give the file that it points to, or leave the link out",
            )
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, link, _PERMISSIONS
        archive.addfile(member)
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
            archive.addfile(member, stream)
        except OSError as error:
            if str(error) == "unexpected end of data":  # what tarfile says; it has no number
                raise changed from None
            raise
        if _marks(os.fstat(descriptor)) != _marks(status):
            raise changed


def _marks(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _leads_outside(name: str, link: str) -> bool:
    """Whether a link at a name of the archive may leave it.

    Going up after a name is no way to stay inside: the name may be another link.
    """
    parts = [part for part in link.split("/") if part not in ("", ".")]
    on = list(dropwhile(lambda part: part == "..", parts))
    return link.startswith("/") or ".." in on or len(parts) - len(on) > name.count("/")


def _problem_with_members(members: Iterable[tarfile.TarInfo]) -> str | None:
    """Why an archive is none of ours; what is in it could write elsewhere."""
    kinds: dict[str, bytes] = {}
    for member in members:
        name = member.name
        if problem := _problem_with_name(name):
            return f"{name!r}: {problem}"
        if member.type not in _KINDS:
            return f"{name!r} is neither a file, a directory nor a symbolic link"
        if name in kinds:
            return f"{name!r} is in it twice"
        if member.issym() and _leads_outside(name, member.linkname):
            return f"the link {name!r} leads outside: {member.linkname!r}"
        kinds[name] = member.type
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
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"there is no space for {path}", cause=error.strerror)
    return KestrelError(f"{path} cannot be written", cause=error.strerror or str(error))
