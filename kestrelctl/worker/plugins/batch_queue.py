"""Asks a batch system on this machine about its queue and its nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence

from kestrelctl.core.batch.question import BatchQuestion
from kestrelctl.core.batch.queue_facts import UnreadableOutput
from kestrelctl.core.properties.reading import PropertyValue
from kestrelctl.errors import UsageError
from kestrelctl.worker.run.orphans import kill_group

#: A program that takes longer is ended: its server may be away.
LONGEST_SECONDS = 60.0
#: A queue that is longer is not read.
MOST_PRINTED_BYTES = 64 << 20


class NotAnswered(Exception):
    """There is no answer; the text says why."""


def batch(words: Sequence[str]) -> PropertyValue:
    """Counts jobs or nodes: `batch slurm pending feature=mpi partition=debug`.

    Raises:
        NotAnswered: there is no such question, or the batch system has not answered it.
    """
    try:
        question = BatchQuestion(words)
        return question.answer(*map(_printed, question.commands))
    except UsageError as error:
        raise NotAnswered(error.message) from None
    except UnreadableOutput as error:
        raise NotAnswered(f"{question.commands[0][0]} says what cannot be read: {error}") from None


def _printed(command: Sequence[str]) -> str:
    """Returns what a program prints. One that fails has not said that nothing waits.

    Its group ends with it: another process of it may keep its output open.
    """
    name = command[0]
    program = shutil.which(name)
    if program is None:
        raise NotAnswered(f"{name} is not installed")
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            (program, *command[1:]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        ) as process,
    ):
        timer = threading.Timer(LONGEST_SECONDS, kill_group, (process.pid,))
        timer.start()
        try:
            assert process.stdout is not None
            printed = process.stdout.read(MOST_PRINTED_BYTES + 1)
            if len(printed) > MOST_PRINTED_BYTES:
                raise NotAnswered(f"{name} prints more than {MOST_PRINTED_BYTES:,} bytes")
            # It is reaped below: until then its number is that of no other group.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        finally:
            timer.cancel()
            timer.join()
            kill_group(process.pid)
        status = process.wait()
        if status:
            said.seek(0)
            lines = said.read(4_096).decode(errors="replace").strip().splitlines()
            why = f": {lines[-1]}" if lines else ""
            raise NotAnswered(f"{name} failed with status {status}{why}")
    return printed.decode(errors="replace")
