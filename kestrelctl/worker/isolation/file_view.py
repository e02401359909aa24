"""The view that tasks have of the machine's files, as mounts of bubblewrap (bwrap(1))."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

#: The files, and the services, by which names of hosts and users are resolved.
_NAME_RESOLUTION = (
    "/run/systemd/resolve",
    "/run/systemd/userdb",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/nscd/socket",
)
_OWN = ("/tmp", "/var/tmp", "/dev/shm")
_HIDDEN = ("/run", "/root")
_KERNEL = ("/dev", "/proc", "/sys")
_CONFIGURATION = ("/etc/kestrel",)
_MOST_LINKS = 40  # path_resolution(7)


class FileView:
    """The file system of the machine, read-only, with parts of it hidden, replaced or shared.

    Args:
        data_dir: the worker's; tasks see their own scratch directory in it, what is shown, and
            nothing else.
        shares: directories (or devices) that tasks may write.
        secrets: further files and directories of the worker's that no task may see.
        shown: directories that tasks may read, wherever they are.
        home: of the worker's user; None to ask the machine, which may know of none.
        memory_bytes: the most that tasks can keep in each of their own /tmp, /var/tmp and /dev/shm;
            0 for what the kernel allows.
    """

    def __init__(
        self,
        data_dir: Path,
        shares: Iterable[Path] = (),
        secrets: Iterable[Path] = (),
        home: Path | None = None,
        memory_bytes: int = 0,
        *,
        shown: Iterable[Path] = (),
    ) -> None:
        self._data_dir = os.path.realpath(data_dir)
        self._shares = [os.path.realpath(share) for share in shares]
        self._shown = [os.path.realpath(each) for each in shown]
        self._shown_of_ours = [d for d in self._shown if _is_below(d, self._data_dir)]
        self._memory_bytes = memory_bytes
        homes = _own_home() if home is None else [str(home)]
        broad = [os.path.realpath(each) for each in (*_HIDDEN, *homes)]
        self._hidden = [d for d in dict.fromkeys(broad) if d != "/" and os.path.isdir(d)]
        self._own = [d for d in _OWN if os.path.isdir(d) and not os.path.islink(d)]
        configurations = [f"{home}/.config" for home in homes]
        if elsewhere := os.environ.get("XDG_CONFIG_HOME"):
            configurations.append(elsewhere)
        owned = [f"{directory}/kestrel" for directory in configurations]
        narrow = (*_CONFIGURATION, *owned, *map(str, secrets))
        self._narrow = [os.path.realpath(secret) for secret in narrow]
        self._secrets = [s for s in self._narrow if self._would_be_seen(s)]

    def before_scratch(self, workdir: str = "") -> list[str]:
        """Options of bwrap for everything but the scratch directory, which is to follow.

        Args:
            workdir: a directory that this task may write, too; empty for none.
        """
        size = ["--size", str(self._memory_bytes)] if self._memory_bytes else []
        words = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        for directory in self._own:
            words += [*size, "--perms", "1777", "--tmpfs", directory]
        for directory in self._hidden:
            words += ["--tmpfs", directory]
        for path in _NAME_RESOLUTION:
            if os.path.exists(path):
                words += ["--ro-bind", path, path]
        for each in filter(self._is_hidden, self._shown):
            words += ["--ro-bind", each, each]
        for share in self._shares:
            words += ["--dev-bind" if share.startswith("/dev/") else "--bind", share, share]
        opened = _opened_by(workdir)
        if opened:
            words += ["--bind", opened, opened]
        for secret in self._secrets_in(opened):
            if os.path.isdir(secret):
                words += ["--tmpfs", secret, "--remount-ro", secret]
            else:
                words += ["--ro-bind", "/dev/null", secret]  # without `nodev`: it cannot be opened
        words += ["--tmpfs", self._data_dir]
        for each in self._shown_of_ours:
            words += ["--ro-bind", each, each]
        return words

    def _secrets_in(self, opened: str) -> list[str]:
        """Lists what is to be hidden once `opened` is seen, too."""
        if not opened:
            return self._secrets
        return [
            secret
            for secret in dict.fromkeys(self._narrow)
            if secret in self._secrets
            or (
                os.path.exists(secret)
                and _is_below(secret, opened)
                and not _is_below(secret, self._data_dir)
            )
        ]

    def after_scratch(self, workdir: str = "") -> list[str]:
        """Options of bwrap that let nothing be written to what only hides something."""
        opened = _opened_by(workdir)
        words = ["--remount-ro", self._data_dir, "--remount-ro", "/dev"]
        for directory in self._hidden:
            if not opened or not _is_below(directory, opened):  # that is no mount any more
                words += ["--remount-ro", directory]
        return words

    def shows(self, path: str) -> bool:
        """Whether tasks see what the machine has at that path, and each link on the way there."""
        for _ in range(_MOST_LINKS):
            directory = os.path.realpath(os.path.dirname(path))
            place = os.path.join(directory, os.path.basename(path))
            if not self._shows(place):
                return False
            if not os.path.islink(place):
                break
            path = os.path.join(directory, os.readlink(place))
        return self._shows(os.path.realpath(path))

    def _shows(self, path: str) -> bool:
        if any(_is_below(path, each) for each in self._shown_of_ours):
            return True
        if _is_below(path, self._data_dir) or any(_is_below(path, s) for s in self._secrets):
            return False
        return self._is_shared(path) or not self._is_hidden(path)

    def _is_shared(self, path: str) -> bool:
        return any(_is_below(path, each) for each in (*self._shares, *self._shown))

    def _would_be_seen(self, path: str) -> bool:
        if not os.path.exists(path) or _is_below(path, self._data_dir):
            return False
        return self._is_shared(path) or not self._is_hidden(path)

    def _is_hidden(self, path: str) -> bool:
        return any(_is_below(path, directory) for directory in (*self._own, *self._hidden))


def _own_home() -> list[str]:
    try:
        return [str(Path.home())]
    except RuntimeError:  # a user that systemd made up, where nothing translates names of such
        return []


def _opened_by(workdir: str) -> str:
    """The directory that a task may write, too, because it starts there; none of the kernel's."""
    real = os.path.realpath(workdir) if workdir else "/"
    return "" if real == "/" or any(_is_below(real, each) for each in _KERNEL) else real


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
