"""Opens what belongs to the worker, and never what a task put in its place.

Tasks may replace each file that they can reach: by a symbolic link, a hard link, a FIFO, a device
or a directory. So names are looked up in open directories, links are not followed (open(2),
O_NOFOLLOW), and no open waits for somebody (O_NONBLOCK; fifo(7)).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path

NO_LINKS = os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | NO_LINKS


class OwnDirectory:
    """A directory of the worker that stays open, so that nothing can be put in its place.

    It is for the worker's user alone (0700). Anything else in its place is removed.

    Args:
        path: absolute; created if missing.

    Attributes:
        fd: the same as long as this lives.
        path: where it was made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = _open_or_make(path)

    def renew(self) -> bool:
        """Makes it again if somebody removed it. Returns whether that was so."""
        if os.fstat(self.fd).st_nlink:
            return False
        made = _open_or_make(self.path)
        os.dup2(made, self.fd, inheritable=False)
        os.close(made)
        return True

    def close(self) -> None:
        """Gives the descriptor back."""
        os.close(self.fd)


def _open_or_make(path: Path) -> int:
    with contextlib.suppress(FileExistsError):  # perhaps no directory; the next line says so
        path.parent.mkdir(mode=0o700, parents=True)
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            return open_directory(path.name, parent)
        except NotADirectoryError:
            os.unlink(path.name, dir_fd=parent)
        except FileNotFoundError:
            pass
        os.mkdir(path.name, 0o700, dir_fd=parent)
        return open_directory(path.name, parent)
    finally:
        os.close(parent)


def open_directory(name: str, parent: int) -> int:
    """Opens a directory in an open one, and makes it accessible to this user alone.

    Raises:
        NotADirectoryError: it is something else, such as a symbolic link.
        OSError: it cannot be opened.
    """
    try:
        directory = os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        allow(name, parent)
        directory = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        if os.fstat(directory).st_mode & 0o7777 != 0o700:
            os.fchmod(directory, 0o700)
    except OSError:
        os.close(directory)
        raise
    return directory


def allow(name: str, parent: int) -> None:
    """Gives this user all permissions for a directory that cannot even be opened.

    OSError if it is something else, or somebody else's.
    """
    if sys.platform != "linux":
        os.chmod(name, 0o700, dir_fd=parent, follow_symlinks=False)
        return
    # fchmod(2) takes no O_PATH descriptor, but its name in /proc leads to it and nowhere else.
    directory = os.open(name, os.O_PATH | os.O_DIRECTORY | NO_LINKS, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{directory}", 0o700)
    finally:
        os.close(directory)


def move(name: str, parent: int, target: str, target_parent: int) -> None:
    """Renames, also a directory without permissions. OSError if that fails, as for a mount."""
    try:
        os.rename(name, target, src_dir_fd=parent, dst_dir_fd=target_parent)
    except PermissionError:
        allow(name, parent)
        os.rename(name, target, src_dir_fd=parent, dst_dir_fd=target_parent)


def open_file(name: str, flags: int, parent: int) -> int:
    """Opens an existing file of the worker's own.

    Raises:
        OSError: it is not there, or no file that has this name alone.
    """
    file = os.open(name, flags | NO_LINKS | os.O_NONBLOCK, dir_fd=parent)
    if not is_own_file(os.fstat(file)):
        os.close(file)
        raise OSError(errno.EINVAL, "somebody put something else in its place", name)
    return file


def make_file(name: str, flags: int, parent: int) -> int:
    """Opens a file of the worker's own, for this user alone; makes it if it is missing.

    Raises:
        OSError: as `open_file`, or it cannot be made.
    """
    made = os.open(name, flags | os.O_CREAT | NO_LINKS | os.O_NONBLOCK, 0o600, dir_fd=parent)
    try:
        if not is_own_file(os.fstat(made)):
            raise OSError(errno.EINVAL, "somebody put something else in its place", name)
        os.fchmod(made, 0o600)
    except OSError:
        os.close(made)
        raise
    return made


def is_own_file(state: os.stat_result) -> bool:
    """Whether it is a plain file with no second name, so that it can be nobody else's."""
    return stat.S_ISREG(state.st_mode) and state.st_nlink == 1
