"""What tasks left, as users are told where it is."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.stored_file import StoredFile
from kestrelctl.protocol.reply import Reply


class TaskFiles(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The files that a task left, as one archive.

    Attributes:
        files: how many.
    """

    task_id: int
    files: int
    stored: StoredFile


class OutputPage(Reply, frozen=True, kw_only=True, tag="output_page"):
    """Only tasks that left files; the next page begins after the index `after`, if it is set."""

    tasks: list[TaskFiles]
    after: int | None = None
