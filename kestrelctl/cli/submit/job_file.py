"""Job files: TOML with the names of the options of `submit`, and the INI files of 2009's Kestrel.

# sweep.toml                          # sample.job
command = ["./fit", "{seed}"]         [job]
from-json = "seeds.json"              queue=5
memory = "2G"                         command=./run_task.sh
requires = ["LINUX"]                  cleanup=./cleanup.sh
                                      requires=FOO BAR

A TOML file with tables `[job.NAME]` describes several jobs that are submitted as one: each has its
own command, and `after` with names of others; what stands before the tables holds for all of them.
"""

from __future__ import annotations

import configparser
import os
import shlex
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from kestrelctl.core.model.files.input_addresses import is_address
from kestrelctl.core.model.job.shell_text import SHELL, numbered
from kestrelctl.core.model.job.stage_rules import COMMANDED
from kestrelctl.errors import UsageError
from kestrelctl.grammar.after_words import split_ending
from kestrelctl.grammar.job_options import JOB_FILE_SUFFIXES
from kestrelctl.grammar.nearest import did_you_mean
from kestrelctl.grammar.parent_file_words import PREFIX, parents_named
from kestrelctl.grammar.stage_words import OPTION_OF

#: Keys of a TOML file besides `command`: options of `submit`.
OPTIONS = (
    "array",
    "each-line",
    "from-json",
    "paste-items",
    "name",
    "priority",
    "cpus",
    "memory",
    "disk",
    "gpus",
    "asset",
    "retry-memory",
    "requires",
    "isolation",
    "requirements",
    "rank",
    "environment",
    "no-flock",
    "max-running",
    "max-failures",
    "success-exit",
    "retry-on",
    "no-retry-on",
    "backoff",
    "max-backoff",
    "max-losses",
    "time-limit",
    "span",
    "service",
    "copies",
    "time-request",
    "deadline",
    "after",
    "after-each",
    "if-parent-fails",
    "hold",
    "hold-after",
    "stop-after",
    "stop-signal",
    "stop-grace",
    "on-worker-lost",
    "output",
    "output-to",
    "checkpoint",
    "checkpoint-every",
    "checkpoint-exit",
    "join",
    "keep-logs",
    "env",
    "export",
    "notify",
    "workdir",
    "input",
    "stdin",
    "cleanup",
    "stage",
)
#: What a table `[stage.NAME]` says.
_STAGE_KEYS = ("command", "time-limit", "tries")
#: The directory of a task that is a scratch directory of its own.
SCRATCH = "scratch"
#: Options that may be a list.
_SEVERAL = (
    "after", "array", "requires", "env", "export", "assets", "inputs", "outputs", "checkpoints",
    "stage-limit", "stage-tries",
)  # fmt: skip
#: What runs scripts with such names, unless their first line says it.
_INTERPRETERS = {
    **dict.fromkeys(("", ".sh", ".bash", ".slurm", ".sbatch", ".pbs"), "sh"),
    ".py": "python3",
}
_FIRST_LINE_BYTES = 256
#: Options that are true or false.
_FLAGS = ("service", "hold", "join", "keep-logs", "no-flock", "paste-items")
_INI_KEYS = ("queue", "command", "cleanup", "requires")


class JobFile(msgspec.Struct, frozen=True):
    """What a job file says.

    Attributes:
        argv: the command.
        options: values by name of the option of `submit`; several are a list, a command is a tuple
            of its words.
    """

    argv: tuple[str, ...]
    options: dict[str, Any]


class GraphFile(msgspec.Struct, frozen=True):
    """What a job file with several jobs says.

    Attributes:
        jobs: by name; each has the option `name`.
        after: for each, the words that say what it waits for.
        after_each: for those of which each task waits for one of another, the word for that.
    """

    jobs: dict[str, JobFile]
    after: dict[str, list[str]]
    after_each: dict[str, str]


def looks_like_job_file(word: str) -> bool:
    """Whether the first word after `submit` names a job file and does not begin a command."""
    path = Path(word)
    try:
        return path.suffix in JOB_FILE_SUFFIXES or path.is_file()
    except OSError:  # too long for the name of a file
        return False


def read_job_file(path: Path, hint: str | None = None) -> JobFile | GraphFile:
    """Reads a job file: TOML if its name ends so, otherwise INI.

    Args:
        hint: what to do if it is no job file at all.

    Raises:
        UsageError: it cannot be read, or says something unknown or wrong.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(f"{path} cannot be read", cause=error.strerror) from None
    except UnicodeDecodeError:
        raise _not_a_job_file(path, "it is no text", hint) from None
    return _read_toml(path, text) if path.suffix == ".toml" else _read_ini(path, text, hint)


def as_command(options: Sequence[str], words: Sequence[str]) -> str:
    """How a file that is there is run as a command, in words for a hint.

    Args:
        options: of `submit`, before the command.
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
    # What is sent along is read, and may not be executed.
    copied = submit("--input", quoted, "--", by, shlex.quote(Path(name).name), *rest)
    return f"{told}; where tasks begin in a directory of their own: {copied}"


def program(name: str) -> tuple[str, ...]:
    """The words of a command that runs a file where it is.

    Args:
        name: of a file that is there.
    """
    head = _head(name)
    if head.startswith((b"#!", b"\x7fELF")) and os.access(name, os.X_OK):
        return (name if "/" in name else f"./{name}",)
    return (*shlex.split(_interpreter(head, Path(name).suffix)), name)


def _head(name: str) -> bytes:
    """How a file begins; nothing if it cannot be read."""
    try:
        with open(name, "rb") as file:
            return file.read(_FIRST_LINE_BYTES)
    except OSError:
        return b""


def _interpreter(head: bytes, suffix: str) -> str:
    """What runs a script: by its first line, or else by its name."""
    line = head.partition(b"\n")[0]
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    return shlex.join(words) or _INTERPRETERS.get(suffix, "PROGRAM")


def _read_toml(path: Path, text: str) -> JobFile | GraphFile:
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
    jobs: dict[str, JobFile] = {}
    after: dict[str, list[str]] = {}
    after_each: dict[str, str] = {}
    for name, table in tables.items():
        own = fields | {"name": name} | _typed(path, f"job.{name}", table, dict)
        if "stage" in fields and "stage" in table:  # a stage of all, unless the job has it itself
            of_all = _typed(path, "stage", fields["stage"], dict)
            own["stage"] = of_all | _typed(path, "stage", table["stage"], dict)
        words = _words(path, own.pop("after", []))
        if "after-each" in own:
            after_each[name] = str(_scalar(path, "after-each", own.pop("after-each")))
        job = jobs[name] = _one(path, own, f"job {name}: ")
        parents = parents_named(job.options.get("inputs", ()))
        missing = [each for each in parents if each != after_each.get(name)]
        after[name] = _with_parents(words, missing)
    return GraphFile(jobs, after, after_each)


def _with_parents(words: list[str], parents: list[str]) -> list[str]:
    """What a job waits for that wants files of some: these, too."""
    named = [split_ending(word)[0] for word in words]
    missing = [each for each in parents if not any(fnmatchcase(each, glob) for glob in named)]
    return words + list(dict.fromkeys(missing))


def _words(path: Path, value: object) -> list[str]:
    """What a job waits for: a word, or a list of them; ids may be numbers."""
    return [str(_scalar(path, "after", each)) for each in _as_list(value)]


def _beside(path: Path, word: str) -> str:
    """A file that a job file names, relative to that; addresses and other jobs as they are."""
    as_it_is = is_address(word) or word.startswith(PREFIX)
    return word if as_it_is else str(path.parent / word)


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _one(path: Path, fields: dict[str, Any], which: str = "") -> JobFile:
    """What the fields of one job say.

    Args:
        which: of several jobs, for messages.
    """
    _refuse_unknown(path, fields, ("command", *OPTIONS))
    argv = _command(path, "command", fields.pop("command", []))
    if not argv:
        raise UsageError(
            f"{path}: {which}there is no command", hint='write command = ["./run", "{}"]'
        )
    if "cleanup" in fields:
        fields["cleanup"] = _command(path, "cleanup", fields["cleanup"])
    for key in ("each-line", "from-json", "stdin"):
        if key in fields:
            fields[key] = _beside(path, _typed(path, key, fields[key], str))
    if fields.get("workdir", SCRATCH) != SCRATCH:
        fields["workdir"] = str(path.parent / _typed(path, "workdir", fields["workdir"], str))
    if "input" in fields:
        given = _as_list(fields.pop("input"))
        fields["inputs"] = [_beside(path, _typed(path, "input", word, str)) for word in given]
    for key in ("requires", "export"):
        if isinstance(fields.get(key), str):
            fields[key] = fields[key].split()
    if "after" in fields:
        fields["after"] = _words(path, fields["after"])
    if "after-each" in fields:
        fields["after-each"] = str(_scalar(path, "after-each", fields["after-each"]))
    if "array" in fields:
        fields["array"] = [str(_scalar(path, "array", fields["array"]))]
    if "env" in fields:
        table = _typed(path, "env", fields["env"], dict)
        fields["env"] = [f"{name}={_scalar(path, name, value)}" for name, value in table.items()]
    if "asset" in fields:
        table = _typed(path, "asset", fields["asset"], dict)
        fields["assets"] = [f"{name}={_scalar(path, name, v)}" for name, v in table.items()]
        del fields["asset"]
    if "stage" in fields:
        fields |= _stages(path, fields.pop("stage"))
    for key in ("output", "checkpoint"):
        if key in fields:
            found = fields.pop(key)
            fields[f"{key}s"] = [found] if isinstance(found, str) else found
    for key, value in fields.items():
        if key in _FLAGS and isinstance(value, bool):
            continue
        if isinstance(value, tuple):  # a command
            continue
        several = key in _SEVERAL and isinstance(value, list)
        for each in value if several else [value]:
            _scalar(path, key, each)
    return JobFile(argv, fields)


def _stages(path: Path, tables: object) -> dict[str, Any]:
    """The options that tables `[stage.NAME]` stand for."""
    found: dict[str, Any] = {"stage-limit": [], "stage-tries": []}
    for name, table in _typed(path, "stage", tables, dict).items():
        _refuse_unknown(path, {name: table}, COMMANDED)
        table = _typed(path, f"stage.{name}", table, dict)
        _refuse_unknown(path, table, _STAGE_KEYS)
        argv = _command(path, f"the stage {name}", table.get("command", []))
        if not argv:
            hint = 'write command = ["./prepare"]'
            raise UsageError(f"{path}: the stage {name} has no command", hint=hint)
        found[OPTION_OF[name]] = argv
        for key, option in (("time-limit", "stage-limit"), ("tries", "stage-tries")):
            if key in table:
                found[option].append(f"{name}={_scalar(path, key, table[key])}")
    return found


def _read_ini(path: Path, text: str, hint: str | None) -> JobFile:
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
    """A command: a list of words, or one line for the shell."""
    if isinstance(value, str):
        return (*SHELL, value) if value.strip() else ()
    words = _typed(path, key, value, list)
    if not all(isinstance(word, str) for word in words):
        raise UsageError(f"{path}: a word of {key} is no string", hint="put it between quotes")
    return tuple(words)


def _scalar(path: Path, key: str, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{path}: {key} is neither text nor a number")
    return value


def _typed(path: Path, key: str, value: object, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        names: dict[type[Any], str]
        names = {str: "text", list: "a list of words", dict: "a table"}
        raise UsageError(f"{path}: {key} is not {names[kind]}")
    return value


def _refuse_unknown(path: Path, fields: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in fields:
        if key not in known:
            hint = did_you_mean(key, known) or f"known are {', '.join(known)}"
            raise UsageError(f"{path}: unknown key {key}", hint=hint)


def _not_a_job_file(path: Path, why: str, hint: str | None) -> UsageError:
    return UsageError(f"{path} is not a job file", cause=why, hint=hint)
