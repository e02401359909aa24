"""Many files as one: a tar archive that depends on nothing but what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def pack(entries: Mapping[str, Path], target: Path) -> None:
    """Writes files, directories and symbolic links into an archive.

    The same entries give the same bytes: names are sorted; times and owners are left out. A
    directory goes with all that is in it. A link stays a link and must stay inside the archive.

    Args:
        entries: by the name in the archive, with `/`; bytes that are not UTF-8 as `os.fsdecode`
            gives them.

    Raises:
        UsageError: an entry is missing, is no file, directory or link, or leads outside.
        NoSpace: the disk is full.
        KestrelError: it cannot be read, or the archive not be written.
    """
    raise NotImplementedError


def unpack(archive: Path, directory: Path) -> None:
    """Writes what is in an archive below a directory, which is made if needed, and nowhere else.

    Raises:
        FileDamaged: it is no archive, or holds what `pack` never writes; nothing was written.
        NoSpace: the disk is full.
        KestrelError: it cannot be read, or the directory not be written.
    """
    raise NotImplementedError
