"""The files that several tasks left, as one directory of the cache of inputs."""

from __future__ import annotations

import hashlib
from heapq import nlargest
from typing import NamedTuple

from kestrelctl.core.model.files.stored_file import StoredFile

#: The most archives that are fetched and unpacked at a time.
AT_ONCE = 4


class Gathered(NamedTuple):
    """A directory with what each of several tasks left.

    Attributes:
        name: its name in the scratch directory of the task that finds it.
        parts: (task id, the archive of what it left): it is unpacked below `task id`.
    """

    name: str
    parts: tuple[tuple[int, StoredFile], ...]

    @property
    def digest(self) -> str:
        """A text that is the same for the same content."""
        found = hashlib.sha256()
        for task_id, stored in self.parts:
            found.update(f"{task_id} {stored.sha256}\n".encode())
        return found.hexdigest()

    @property
    def size_bytes(self) -> int:
        """The size of all archives."""
        return sum(stored.size_bytes for _, stored in self.parts)

    @property
    def needed_bytes(self) -> int:
        """The space for it as it comes: all of it, and the archives that are unpacked at a time."""
        largest = nlargest(AT_ONCE, (stored.size_bytes for _, stored in self.parts))
        return self.size_bytes + sum(largest)
