"""Refuses commands of tasks that would run something else than what was meant."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from kestrelctl.errors import UsageError

#: The words after which GNU parallel takes items: given as words, or in files.
_MARKS = (":::", "::::")


def check_command(argv: Sequence[str]) -> None:
    """Passes if each task would run what was meant, as far as the words can tell.

    Raises:
        UsageError: the command begins with variables or is a line for a shell, or gives items as
            GNU parallel takes them.
    """
    first = argv[0]
    name, equals, _ = first.partition("=")
    if equals and name.isidentifier():
        raise UsageError(
            f"{first!r} is no program",
            cause="no shell reads the command, which would set a variable",
            hint=f"--env {shlex.quote(first)}",
        )
    if len(argv) == 1 and len(first.split()) > 1 and not os.path.exists(first):
        raise UsageError(
            f"there is no program with the name {first[:80]!r}",
            cause="a command is words, and no shell takes a line apart",
            hint="give the words, or -- sh -c 'LINE'",
        )
    for mark in _MARKS:
        if mark in argv and not any("parallel" in each for each in argv[: argv.index(mark)]):
            raise UsageError(
                f"{mark} would be a word of the command",
                cause="only `map` and GNU parallel take items after it",
                hint="kestrelctl map COMMAND ::: ARGUMENT..., or --each-line FILE",
            )


def refuse_queue(words: Sequence[str]) -> None:
    """Passes unless the words after `-q` are a queue and a script, as other systems take them.

    Raises:
        UsageError: the first is no program here, and the second is a file.
    """
    if len(words) < 2 or not os.path.isfile(words[1]):
        return
    import shutil  # it costs a command a millisecond, and few come here

    if shutil.which(words[0]) is None and not os.path.exists(words[0]):
        raise UsageError(
            f"-q is --quiet here, and {words[0]!r} would be the command",
            cause="there are no queues: --requires names a tag of workers",
            hint=f"kestrelctl submit -q -- {shlex.join(words)}, if it is a command",
        )
