"""A directory to which the files of a job's tasks come: `DIR/TASK/…`.

What is known of it is in `DIR/.kestrel`: whose job it is for, and what the files of each task were
when they came. So a second call knows what is there and right, and writes over nothing of others.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from kestrelctl.core.model.stored_file import StoredFile
from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.files.archive import unpack

_NOTES = ".kestrel"


class _Whose(msgspec.Struct, frozen=True):
    """The job that a directory is for; the moment tells jobs of different pools apart."""

    job_id: int
    submitted_at: float


class _Note(msgspec.Struct, frozen=True):
    """What came of a task.

    Attributes:
        sha256: of its archive.
        files: (name, size, time of the last change) of each; the bytes of a name as characters.
    """

    sha256: str
    files: list[tuple[str, int, int]]


class FetchDirectory:
    """Takes the archives of tasks, one after the other or several at a time.

    Args:
        path: made if it is missing.

    Raises:
        UsageError: it has files of another job, or cannot be used.
    """

    def __init__(self, path: Path, job_id: int, submitted_at: float) -> None:
        self.path = path
        self._notes = path / _NOTES
        whose = _Whose(job_id, submitted_at)
        try:
            self._notes.mkdir(parents=True, exist_ok=True)
            note = self._notes / "job.json"
            if not note.exists():
                _write(note, whose)
            if msgspec.json.decode(note.read_bytes(), type=_Whose) == whose:
                return
        except OSError as error:
            raise UsageError(f"{path} cannot be used", cause=error.strerror) from None
        except msgspec.MsgspecError:
            pass
        raise UsageError(
            f"{path} has the files of another job", hint=f"--to DIR, with another one for {job_id}"
        )

    def archive(self, task_id: int) -> Path:
        """Where the archive of a task is to be put."""
        return self._notes / f"{task_id}.tar"

    def has(self, task_id: int, stored: StoredFile) -> bool:
        """Whether the files of a task are here, as they came."""
        try:
            note = msgspec.json.decode((self._notes / f"{task_id}.json").read_bytes(), type=_Note)
            if note.sha256 != stored.sha256:
                return False
            place = self.path / str(task_id)
            return all(_marks(place / _name(name)) == (size, at) for name, size, at in note.files)
        except (OSError, msgspec.MsgspecError):
            return False

    def take(self, task_id: int, stored: StoredFile) -> None:
        """Unpacks the archive that was put in its place. Files of the same names are replaced.

        Raises:
            UsageError: what is in the place of the task is not from here.
            FileDamaged: it is no archive of files.
            NoSpace: the disk has not so much free.
            KestrelError: the files cannot be written.
        """
        place, note = self.path / str(task_id), self._notes / f"{task_id}.json"
        if os.path.lexists(place) and not note.exists():
            raise UsageError(f"{place} is in the way", hint="move it, or choose another --to DIR")
        unpacked = self._notes / f"{task_id}.files"
        try:
            shutil.rmtree(unpacked, ignore_errors=True)
            # Nothing else is known of how large they may be: no more than what is free.
            free_bytes = shutil.disk_usage(self._notes).free
            unpack(self.archive(task_id), unpacked, free_bytes)
            files = _files_below(unpacked)
            for file in files:
                _must_lead_through_directories(place, file)
            marks = [(_text(file), *_marks(unpacked / file)) for file in files]
            _write(
                note, _Note(stored.sha256, marks)
            )  # before the files: it says that they are ours
            if place.exists():
                for file in files:
                    (place / file).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(unpacked / file, place / file)
                shutil.rmtree(unpacked)
            else:
                os.rename(unpacked, place)
            self.archive(task_id).unlink()
        except OSError as error:
            raise KestrelError(
                f"the files of task {task_id} cannot be written", cause=error.strerror
            ) from error


def _files_below(directory: Path) -> list[Path]:
    """The names of all files and links below a directory."""
    found = []
    for above, directories, names in os.walk(directory):
        links = [name for name in directories if os.path.islink(f"{above}/{name}")]
        found += [Path(above, name).relative_to(directory) for name in (*names, *links)]
    return found


def _must_lead_through_directories(place: Path, file: Path) -> None:
    """UsageError if a file would be written through a link, which may lead anywhere."""
    for above in file.parents:
        if (place / above).is_symlink() and above != Path():
            raise UsageError(
                f"{place / above} is in the way",
                cause="it is a link, and a directory comes",
                hint="remove it, or choose another --to DIR",
            )


def _marks(file: Path) -> tuple[int, int]:
    state = file.stat(follow_symlinks=False)
    return state.st_size, state.st_mtime_ns


def _text(file: Path) -> str:
    """A name as JSON can hold it: each byte is a character."""
    return os.fsencode(file).decode("latin-1")


def _name(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))


def _write(note: Path, value: _Note | _Whose) -> None:
    """Writes a note; it is whole, or not there."""
    new = note.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(value))
    os.replace(new, note)
