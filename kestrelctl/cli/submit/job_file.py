"""Job files: TOML with the names of the options of `submit`, and the INI files of 2009's Kestrel.

# sweep.toml                          # sample.job
command = ["./fit", "{seed}"]         [job]
from-json = "seeds.json"              queue=5
memory = "2G"                         command=./run_task.sh
requires = ["LINUX"]                  cleanup=./cleanup.sh
                                      requires=FOO BAR

A TOML file with tables `[job.NAME]` describes several jobs that are submitted as one: each has its
own command, and `after` with names of others; keys before the tables hold for all of them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from kestrelctl.client.graph import Draft, Graph
from kestrelctl.core.model.files.addresses import is_address
from kestrelctl.core.model.job.shell_text import SHELL, numbered
from kestrelctl.core.model.job.stage import COMMANDED
from kestrelctl.errors import UsageError
from kestrelctl.grammar.job_options import FORMER_KEEP, JOB_FILE_SUFFIXES, OPTIONS
from kestrelctl.grammar.nearest import did_you_mean
from kestrelctl.grammar.option import (
    Command,
    File,
    Flag,
    JobNames,
    Option,
    Pairs,
    Ranges,
    Words,
)
from kestrelctl.grammar.parent_file_words import PREFIX
from kestrelctl.grammar.stage_words import OPTION_OF

#: Keys of a TOML file that describe a job: its command, options of `submit`, and its stages.
_KEYS = {option.name: option for option in OPTIONS if option.in_file}
_STAGES = "stage"
#: The keys of a table `[stage.NAME]`.
_STAGE_KEYS = ("command", "time-limit", "tries")
#: The programs that run scripts with such names, unless their first line names one.
_INTERPRETERS = {
    **dict.fromkeys(("", ".sh", ".bash", ".slurm", ".sbatch", ".pbs"), "sh"),
    ".py": "python3",
}
_FIRST_LINE_BYTES = 256
_INI_KEYS = ("queue", "command", "cleanup", "requires")


class JobFile(Draft, frozen=True):
    """The contents of a job file. Several values of an option are a list, a command is a tuple of
    its words.

    Attributes:
        warnings: remarks on what should be written otherwise.
    """

    warnings: tuple[str, ...] = ()


class GraphFile(Graph):
    """The contents of a job file with several jobs.

    Attributes:
        warnings: remarks on what should be written otherwise, each once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.warnings: dict[str, None] = {}


def looks_like_job_file(word: str) -> bool:
    """Whether the first word after `submit` names a job file and begins no command."""
    path = Path(word)
    try:
        return path.suffix in JOB_FILE_SUFFIXES or path.is_file()
    except OSError:  # too long for the name of a file
        return False


def read_job_file(path: Path, hint: str | None = None) -> JobFile | GraphFile:
    """Reads a job file: TOML if its name ends in `.toml`, otherwise INI.

    Args:
        hint: the hint of the error if it is no job file at all.

    Raises:
        UsageError: it cannot be read, or says something unknown or wrong.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read", cause=error.strerror) from None
    except UnicodeDecodeError:
        raise _not_a_job_file(path, "it is no text", hint) from None
    return _read_toml(path, text) if path.suffix == ".toml" else _read_ini(path, text, hint)


def as_command(options: Sequence[str], words: Sequence[str]) -> str:
    """Says how to run an existing file as a command, in words for a hint.

    Args:
        options: the options of `submit`, before the command.
        words: the file, and its arguments.
    """
    name, *rest = words
    head = _head(name)
    by = _interpreter(head, Path(name).suffix)
    quoted = shlex.quote(name)

    def submit(*parts: str) -> str:
        return " ".join(["kestrelctl submit", *map(shlex.quote, options), *parts])

    rest = [shlex.quote(word) for word in rest]
    told = f"to run it as a command: {submit('--', shlex.join(program(name)), *rest)}"
    if head.startswith(b"\x7fELF"):
        return told
    # A file that is sent along is read by its interpreter: it may not be executable.
    copied = submit("--input", quoted, "--", by, shlex.quote(Path(name).name), *rest)
    return f"{told}; where tasks begin in a directory of their own: {copied}"


def program(name: str) -> tuple[str, ...]:
    """Returns the words of a command that runs a file where it is.

    Args:
        name: the name of an existing file.
    """
    head = _head(name)
    if head.startswith((b"#!", b"\x7fELF")) and os.access(name, os.X_OK):
        return (name if "/" in name else f"./{name}",)
    return (*shlex.split(_interpreter(head, Path(name).suffix)), name)


def _head(name: str) -> bytes:
    """Reads the first bytes of a file; empty if it cannot be read."""
    try:
        with open(name, "rb") as file:
            return file.read(_FIRST_LINE_BYTES)
    except OSError:
        return b""


def _interpreter(head: bytes, suffix: str) -> str:
    """Returns the program that runs a script: by its first line, or else by its name."""
    line = head.partition(b"\n")[0]
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    return shlex.join(words) or _INTERPRETERS.get(suffix, "PROGRAM")


def _read_toml(path: Path, text: str) -> JobFile | GraphFile:
    import tomllib  # most jobs are not in a file

    try:
        fields = tomllib.loads(text)
    except ValueError as error:  # a TOMLDecodeError, or a number of too many digits
        raise UsageError(f"{path} is not TOML", cause=str(error)) from None
    except RecursionError:
        raise UsageError(f"{path} cannot be read", cause="it nests too deeply") from None
    if "job" in fields:
        return _several(path, fields)
    return _one(path, fields)


def _several(path: Path, fields: dict[str, Any]) -> GraphFile:
    tables = _typed(path, "job", fields.pop("job"), dict)
    if not tables:
        raise UsageError(f"{path} has no job", hint='write [job.NAME] and command = ["./run"]')
    graph = GraphFile()
    for name, table in tables.items():
        own = fields | {"name": name} | _typed(path, f"job.{name}", table, dict)
        if "stage" in fields and "stage" in table:  # a job's own stages replace those of all jobs
            of_all = _typed(path, "stage", fields["stage"], dict)
            own["stage"] = of_all | _typed(path, "stage", table["stage"], dict)
        words = _words(path, "after", own.pop("after", []))
        each = None
        if "after-each" in own:
            each = str(_scalar(path, "after-each", own.pop("after-each")))
        job = _one(path, own, f"job {name}: ")
        graph.put(name, job, words, each)
        graph.warnings |= dict.fromkeys(job.warnings)
    return graph


def _words(path: Path, key: str, value: object) -> list[str]:
    """Reads what a job waits for: a word, or a list of them; ids may be numbers."""
    return [str(_scalar(path, key, each)) for each in _as_list(value)]


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _one(path: Path, fields: dict[str, Any], which: str = "") -> JobFile:
    """Reads the fields of one job.

    Args:
        which: names the job in messages, if there are several.
    """
    warnings: tuple[str, ...] = ()
    if FORMER_KEEP in fields and "keep" not in fields:
        fields["keep"] = fields.pop(FORMER_KEEP)
        warnings = (f"{path}: `{FORMER_KEEP}` is called `keep` now",)
    _refuse_unknown(path, fields, ("command", *_KEYS, _STAGES))
    argv = _command(path, "command", fields.pop("command", []))
    if not argv:
        raise UsageError(
            f"{path}: {which}there is no command", hint='write command = ["./run", "{}"]'
        )
    stages = _stages(path, fields.pop(_STAGES)) if _STAGES in fields else {}
    said = {_KEYS[key].dest: _said(path, _KEYS[key], value) for key, value in fields.items()}
    return JobFile(argv, said | stages, warnings=warnings)


def _said(path: Path, option: Option, value: object) -> Any:
    """Converts a file's value of an option into what a command line would give."""
    key = option.name
    match option.value:
        case Flag() if not isinstance(value, str):
            return _typed(path, key, value, bool)
        case Command():
            return _command(path, key, value)
        case File(stays=stays):
            named = [_typed(path, key, each, str) for each in _as_list(value)]
            found = [each if each in ("", stays) else _beside(path, each) for each in named]
            return found if option.repeats else _only(path, key, found)
        case Words() if isinstance(value, str):
            return value.split()
        case Pairs():
            table = _typed(path, key, value, dict)
            return [Pairs.pair(name, _scalar(path, name, each)) for name, each in table.items()]
        case JobNames():
            words = _words(path, key, value)
            return words if option.repeats else _only(path, key, words)
        case Ranges():
            return [str(_scalar(path, key, each)) for each in _as_list(value)]
    if not option.repeats:
        return _scalar(path, key, value)
    return [_scalar(path, key, each) for each in _as_list(value)]


def _only(path: Path, key: str, found: Sequence[str]) -> str:
    if len(found) != 1:
        raise UsageError(f"{path}: {key} takes one value, not {len(found)}")
    return found[0]


def _beside(path: Path, word: str) -> str:
    """Resolves a name relative to the job file; addresses and other jobs stay as they are."""
    as_it_is = is_address(word) or word.startswith(PREFIX)
    return word if as_it_is else str(path.parent / word)


def _stages(path: Path, tables: object) -> dict[str, Any]:
    """Reads the options that tables `[stage.NAME]` stand for."""
    found: dict[str, Any] = {"stage_limit": [], "stage_tries": []}
    for name, table in _typed(path, "stage", tables, dict).items():
        _refuse_unknown(path, {name: table}, COMMANDED)
        table = _typed(path, f"stage.{name}", table, dict)
        _refuse_unknown(path, table, _STAGE_KEYS)
        argv = _command(path, f"the stage {name}", table.get("command", []))
        if not argv:
            hint = 'write command = ["./prepare"]'
            raise UsageError(f"{path}: the stage {name} has no command", hint=hint)
        found[OPTION_OF[name]] = argv
        for key, option in (("time-limit", "stage_limit"), ("tries", "stage_tries")):
            if key in table:
                found[option].append(f"{name}={_scalar(path, key, table[key])}")
    return found


def _read_ini(path: Path, text: str, hint: str | None) -> JobFile:
    import configparser  # most jobs are not in a file

    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
        section = dict(parser["job"])
    except KeyError:
        raise _not_a_job_file(path, "it has no section [job]", hint) from None
    except configparser.Error as error:
        raise _not_a_job_file(path, str(error).partition("\n")[0], hint) from None
    _refuse_unknown(path, section, _INI_KEYS)
    queue = section.get("queue", "1").strip()
    try:
        tasks = int(queue) if queue.isascii() and queue.isdigit() else 0
    except ValueError:  # of too many digits
        tasks = 0
    if not tasks:
        raise UsageError(f"{path}: queue = {queue} is no number of tasks", hint="write queue=5")
    if not section.get("command", "").strip():
        raise UsageError(f"{path} has no command", hint="write command=./run_task.sh")
    options: dict[str, Any] = {"array": [f"0-{tasks - 1}"]} if "queue" in section else {}
    if tags := section.get("requires", "").upper().split():
        options["requires"] = tags
    if cleanup := numbered(section.get("cleanup", "")):
        options["cleanup"] = cleanup
    return JobFile(numbered(section["command"]), options)


def _command(path: Path, key: str, value: object) -> tuple[str, ...]:
    """Reads a command: a list of words, or one line for the shell."""
    if isinstance(value, str):
        return (*SHELL, value) if value.strip() else ()
    words = _typed(path, key, value, list)
    if not all(isinstance(word, str) for word in words):
        raise UsageError(f"{path}: a word of {key} is no string", hint="put it between quotes")
    return tuple(words)


def _scalar(path: Path, key: str, value: object) -> object:
    """Returns a text or a number; a moment, which TOML has without quotes, as text."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{path}: {key} is neither text nor a number")
    return value


def _typed(path: Path, key: str, value: object, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        names: dict[type[Any], str]
        names = {
            str: "text",
            list: "a list of words",
            dict: "a table",
            bool: "true or false",
        }
        raise UsageError(f"{path}: {key} is not {names[kind]}")
    return value


def _refuse_unknown(path: Path, fields: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in fields:
        if key not in known:
            hint = did_you_mean(key, known) or f"known are {', '.join(known)}"
            raise UsageError(f"{path}: unknown key {key}", hint=hint)


def _not_a_job_file(path: Path, why: str, hint: str | None) -> UsageError:
    return UsageError(f"{path} is not a job file", cause=why, hint=hint)
