"""Translates a command line that was refused, if its words are those of another system.

`kestrelctl squeue -u ada` is `kestrelctl job list --owner ada`. A line is proposed only as a whole,
if all of its words are understood and the command takes it. It is never run by itself.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from kestrelctl.cli.command import Invocation
from kestrelctl.cli.show.screen import PROGRAM
from kestrelctl.cli.submit.job_file import program
from kestrelctl.cli.task_command import check_command
from kestrelctl.errors import UsageError
from kestrelctl.grammar.click_options import LAST_JOB
from kestrelctl.grammar.id_ranges import parse_jobs
from kestrelctl.grammar.job_options import JOB_FILE_SUFFIXES
from kestrelctl.grammar.other_words import (
    COMMANDS,
    DIRECTIVES,
    FILES,
    FORMS,
    MOST_WORDS,
    PROGRAMS,
    OtherCommand,
    OtherOption,
    directives,
    option_called,
    task_of_job,
    value_elsewhere,
)

#: Groups that are searched for a command of our own that was typed without its group.
_GROUPS = ("job", "worker", "pool", "user")
#: Commands that take a job by its name, as `--name`.
_BY_NAME = ("job list", "job history", "job cancel", "job hold", "job release", "job forget")
#: Commands that take tasks behind the job.
_WITH_TASKS = ("job logs", "job tasks", "job retry", "job story")
#: Commands that have an option for tasks.
_TASK_OPTION = {"job cancel": "--task", "job fetch": "--tasks"}
#: A line with one of these is given to a shell.
_SHELL_WORDS = re.compile(r"[|&;<>$`*?~#]|\(|\)")
_ASSIGNMENT = re.compile(r"\+?([A-Za-z_]\w*)\s*=\s*(.*)", re.DOTALL)
#: Options of one letter that have in GNU parallel the meaning that the table gives them.
_PARALLEL_LETTERS = {"-j", "-P", "-a", "-k", "-u", "-S", "-I"}
#: Marks of GNU parallel behind which inputs stand.
_SOURCE = re.compile(r":{3,4}\+?")
#: Placeholders of GNU parallel that `submit` does not fill in.
_OF_PARALLEL = re.compile(r"\{[\d./#%+=-][^{}]*\}")
#: The most bytes of a script that are looked at.
_MOST_BYTES = 65_536


class Spelling(NamedTuple):
    """A line as it is written here.

    Attributes:
        hint: the line.
        notes: the differences from the system that its words come from.
    """

    hint: str
    notes: tuple[str, ...]


class _NotUnderstood(Exception):
    """Says that a word is not known, here or elsewhere."""


class _Whole(Exception):
    """Carries the whole line, if more than single words has to be replaced."""


def spelled(root: click.Group, args: Sequence[str]) -> Spelling | None:
    """Translates a refused command line; None if it is not understood, or written so already.

    Args:
        args: the words after the name of the program.
    """
    line = _Line(root, list(args))
    try:
        return line.spelled()
    except _Whole as whole:
        return Spelling(str(whole), ())
    except _NotUnderstood:
        return line.helped()


def unread_directives(root: click.Group, argv: Sequence[str]) -> Spelling | None:
    """Finds the lines for another system, which nobody reads here, in a script that is submitted.

    Returns:
        The options of `submit` that say the same; None if there are no such lines.
    """
    script = next((Path(word) for word in argv[:2] if os.path.isfile(word)), None)
    mark, words = _directives(script) if script is not None else ("", [])
    if not words:
        return None
    note = f"the lines {mark} of {script} are for {DIRECTIVES[mark]}, and nobody reads them here"
    try:
        own = _Line(root, []).options_of_script(words)
    except _NotUnderstood:
        own = []
    return Spelling(f"say it on the line: {_joined(own)}" if own else "", (note,))


class _Line:
    """A command line, word by word."""

    def __init__(self, root: click.Group, args: list[str]) -> None:
        self._root = root
        self._args = args
        self._notes: list[str] = []
        self._front: list[str] = []  # options before the command
        self._path = ""
        self._found: OtherCommand | None = None  # the command of another system
        self._name = ""  # what was typed for it
        self._letters: set[str] = set()  # options of one letter that were understood
        self._tasks: list[str] = []  # named by an option elsewhere, and behind the job here
        self._changed = False
        self._dashes = False  # whether `--` stands before the command of a task

    def options_of_script(self, words: list[str]) -> list[str]:
        """Translates the options in a script into those of `submit`."""
        self._path = "submit"
        submit = self._below(self._root, "submit")
        assert submit is not None
        own, positionals, task = self._options(submit, words)
        if positionals or task or not _is_taken(submit, [*own, "--", "true"]):
            raise _NotUnderstood
        return own

    def spelled(self) -> Spelling | None:
        rest = self._leading(self._root, self._args)
        if not rest:
            raise _NotUnderstood
        command, fixed, rest = self._command(rest)
        if command is None:  # `help`, `version`
            return Spelling(_joined([PROGRAM, *self._front, *rest, *fixed]), ())
        if self._path == "submit" and rest and "--" not in rest:
            foreign = FILES.get(Path(rest[-1]).suffix)
            if foreign is not None:
                return Spelling(
                    f"{PROGRAM} submit -- COMMAND; docs/other-systems.md has the words",
                    (f"{rest[-1]} describes a job to {foreign}, and nobody reads that here",),
                )
        own, positionals, task = self._options(command, rest)
        before: list[str] = []
        if self._path == "submit" and task:
            if _is_job_file(task) and not self._dashes:  # options may follow it
                more, others, _ = self._options(command, task[1:])
                own, task = [*own, *more], [task[0], *others]
            else:
                before, own, task = self._task(own, task)
        elif self._names_a_job(positionals):
            return Spelling(
                _joined([PROGRAM, *self._front, "job", "list", "--name", positionals[0]]),
                (f"`{self._path}` takes the ids of jobs, not their names",),
            )
        own = _together(own)
        words = [*fixed, *own, *self._settled(positionals), *self._tasks]
        if task and not (_is_job_file(task) and not self._dashes):
            task = ["--", *task]
        whole = [*words, *task]
        if not self._changed:
            return None
        if {"-h", "--help"}.isdisjoint(words) and not self._is_meant(command, own, whole, task):
            raise _NotUnderstood
        line = _joined([PROGRAM, *self._front, *self._path.split(), *whole])
        return Spelling("".join(before) + line, tuple(dict.fromkeys(self._notes)))

    def _below(self, group: click.Group, name: str) -> click.Command | None:
        return group.get_command(click.Context(group), name)

    def helped(self) -> Spelling | None:
        """Proposes the help of the command that is meant, if another word is not understood."""
        if self._found is None or not self._path:
            return None
        if self._name == "parallel":
            return self._as_map()
        meant = f"{PROGRAM} {self._path}"
        return Spelling(f"{meant} --help", (f"`{self._name}` is `{meant}` here",))

    def _as_map(self) -> Spelling:
        """Proposes `map` for GNU parallel: with the same words, or its help if it takes others."""
        words = self._args[self._args.index(self._name) + 1 :]
        command = self._below(self._root, "map")
        assert command is not None
        task = " ".join(itertools.takewhile(lambda word: not _SOURCE.fullmatch(word), words))
        if _is_taken(command, words) and not _SHELL_WORDS.search(_OF_PARALLEL.sub("", task)):
            return Spelling(_joined([PROGRAM, *self._front, "map", *words]), ())
        meant = _joined([PROGRAM, *self._front, "map"])
        return Spelling(f"{meant} --help", (f"`{self._name}` is `{meant}` here",))

    def _is_meant(
        self, command: click.Command, own: list[str], whole: list[str], task: list[str]
    ) -> bool:
        """Whether the line would be taken and do what was meant, as far as can be told."""
        single = [
            name
            for param in command.params
            if isinstance(param, click.Option) and not param.multiple
            for name in param.opts
        ]
        said = [word.partition("=")[0] for word in own if word.startswith("--")]
        if any(said.count(name) > 1 for name in single):
            return False
        if self._path == "submit":
            if not task:
                return False
            try:
                check_command([word for word in task if word != "--"] or [""])
            except UsageError:
                return False
        return _is_taken(command, whole)

    def _leading(self, command: click.Command, words: list[str]) -> list[str]:
        """Takes the options before the next command; returns the words after them."""
        known = _known(command)
        while words and words[0].startswith("-"):
            name, equals, _ = words[0].partition("=")
            if name not in known:
                raise _NotUnderstood
            count = 2 if known[name] and not equals else 1
            self._front += words[:count]
            words = words[count:]
        return words

    def _command(self, rest: list[str]) -> tuple[click.Command | None, list[str], list[str]]:
        """Finds the command that is meant, its fixed options, and the words after its name."""
        while rest[0] in PROGRAMS and len(rest) > 1:
            rest = rest[1:]
            self._changed = True
        group: click.Command = self._root
        place: list[str] = []
        while isinstance(group, click.Group):
            if not rest:
                raise _NotUnderstood
            below = self._below(group, rest[0])
            if below is None:
                return self._elsewhere(" ".join(place), rest)
            place.append(rest[0])
            group = below
            rest = rest[1:]
            if isinstance(group, click.Group):
                rest = self._leading(group, rest)
        self._path = " ".join(place)
        return group, [], rest

    def _elsewhere(
        self, place: str, rest: list[str]
    ) -> tuple[click.Command | None, list[str], list[str]]:
        """Does the same as `_command`, for words that are no command of ours at that place."""
        self._changed = True
        found, rest = self._other_command(place, rest)
        if found is None:
            raise _NotUnderstood
        if found.hint:
            raise _Whole(found.hint)
        self._found = found
        if found.note:
            self._notes.append(found.note)
        follows = any(not word.startswith("-") for word in rest)
        words = (found.with_words if follows and found.with_words else found.here).split()
        if words[0].startswith("-"):
            return None, words, rest
        command: click.Command = self._root
        path: list[str] = []
        while isinstance(command, click.Group):
            below = self._below(command, words[0])
            assert below is not None
            command = below
            path.append(words.pop(0))
        self._path = " ".join(path)
        return command, words, rest

    def _other_command(self, place: str, rest: list[str]) -> tuple[OtherCommand | None, list[str]]:
        """Finds a command of another system, or one of ours in another group."""
        self._name = rest[0]
        for count in range(min(MOST_WORDS, len(rest)), 0, -1):
            found = COMMANDS.get(place, {}).get(tuple(rest[:count]))
            if found is not None:
                self._name = " ".join([*place.split(), *rest[:count]])
                return found, rest[count:]
        for name in ("",) if place else _GROUPS:
            group = self._below(self._root, name) if name else self._root
            assert isinstance(group, click.Group)
            below = self._below(group, rest[0])
            if below is not None and not isinstance(below, click.Group):
                return OtherCommand(f"{name} {rest[0]}".strip()), rest[1:]
        return None, rest

    def _options(
        self, command: click.Command, rest: list[str]
    ) -> tuple[list[str], list[str], list[str]]:
        """Returns the options as they are here, the arguments, and the command of a task."""
        known = _known(command)
        own: list[str] = []
        positionals: list[str] = []
        while rest:
            word, *rest = rest
            if word == "--":
                self._dashes = True
                return own, positionals, rest
            if not word.startswith("-") or word == "-":
                if self._path == "submit":
                    return own, positionals, [word, *rest]
                positionals.append(word)
                continue
            name, equals, value = word.partition("=") if word[:2] == "--" else (word, "", "")
            if self._path == "submit" and name == "--wrap":
                script, rest = (value, rest) if equals else _next(rest)
                self._changed = True
                return own, positionals, ["sh", "-c", script]
            if name[:2] != "--" and name not in known:
                name, equals, value = self._short(name, known)
            if name in known:
                if known[name] and not equals:
                    value, rest = _next(rest)
                if name == "--pool":
                    self._front += [name, value]
                    continue
                elsewhere = value_elsewhere(self._path, name, value) if known[name] else None
                if elsewhere is not None and elsewhere.words(value) != [name, value]:
                    own += self._said(elsewhere, value)
                elif known[name]:
                    own += [f"{name}={value}"] if equals and name[:2] == "--" else [name, value]
                else:
                    own.append(name)
                continue
            other = option_called(self._path, name)
            if other is None:
                raise _NotUnderstood
            if other.takes_value and not equals:
                value, rest = _next(rest)
            if other.whole:
                if own or positionals or rest:  # the line would leave them out
                    raise _NotUnderstood
                whole = other.whole.replace("COMMAND", self._path)
                raise _Whole(
                    " ".join(
                        _joined(FORMS[each](value)) if each in FORMS else each
                        for each in whole.split()
                    )
                )
            self._letters.update([name] if len(name) == 2 else [])
            said = self._said(other, value)
            if other.here == "WORD":
                self._tasks += said
            else:
                own += said
        return own, positionals, []

    def _short(self, word: str, known: dict[str, bool]) -> tuple[str, str, str]:
        """Splits a word with one dash: its name, whether the value is attached, and the value."""
        if option_called(self._path, word) is not None:
            return word, "", ""
        if f"-{word}" in known:
            self._changed = True
            return f"-{word}", "", ""
        letter, value = word[:2], word[2:]
        other = option_called(self._path, letter)
        attached = value and not value[0].isalpha()  # a longer word is none of these
        if attached and (known.get(letter) or (other is not None and other.takes_value)):
            return letter, "=", value
        raise _NotUnderstood

    def _said(self, other: OtherOption, value: str) -> list[str]:
        self._changed = True
        if other.note:
            self._notes.append(other.note)
        try:
            return other.words(value)
        except ValueError:
            raise _NotUnderstood from None

    def _settled(self, positionals: list[str]) -> list[str]:
        """Returns the arguments as they are here."""
        found = self._found
        if found is not None and found.second and len(positionals) > 1:
            first, second, *others = positionals
            if others:
                raise _NotUnderstood
            return [first, found.second, second]
        words: list[str] = []
        for word in positionals[: found.most if found is not None else None]:
            words += self._argument(word)
        if self._path in _WITH_TASKS and len(words) > 2 and all(map(str.isdecimal, words)):
            self._changed = True
            if self._path == "job retry":
                return [",".join(words)]
            if self._path != "job story":
                return [words[0], ",".join(words[1:])]
        return words

    def _names_a_job(self, positionals: list[str]) -> bool:
        """Whether a name is given where only ids are taken."""
        of_ids = self._path.startswith("job ") and self._path not in _BY_NAME
        return of_ids and bool(positionals) and not _may_select_jobs(positionals[0])

    def _argument(self, word: str) -> list[str]:
        if not self._path.startswith("job "):
            return [word]
        both = task_of_job(word)
        if both is not None:
            self._changed = True
            job, task = both
            if self._path in _WITH_TASKS:
                return [job, task]
            if self._path in _TASK_OPTION:
                return [job, _TASK_OPTION[self._path], task]
            shows = f"`{PROGRAM} job tasks {job} {task}` shows the task"
            self._notes.append(f"`{self._path}` is about whole jobs; {shows}")
            return [job]
        if self._path == "job logs" and word in ("stdout", "stderr"):
            self._changed = True
            return [f"--{word}"]
        if self._path in _BY_NAME and not _may_select_jobs(word):
            self._changed = True
            if not self._name.startswith("condor_"):
                return ["--name", word]
            if self._path in ("job list", "job history"):  # a user
                return ["--owner", word]
            user = option_called(self._path, "-u")
            assert user is not None
            line = user.whole.replace("COMMAND", self._path)
            raise _Whole(line.replace("VALUE", _quoted(word)))
        return [word]

    def _task(self, own: list[str], task: list[str]) -> tuple[list[str], list[str], list[str]]:
        """Returns the words before the line, and a task's options and command as they are here."""
        while task and (match := _ASSIGNMENT.fullmatch(task[0])):
            other = option_called("submit", f"--{match[1].lower()}")
            found = self._said(other, match[2]) if other is not None else ["--env", task[0]]
            own = [*own, *found]
            task = task[1:]
            self._changed = True
        before, own, task = self._items(own, task)
        if not task:
            return before, own, task
        if len(task) == 1 and " " in task[0] and not os.path.exists(task[0]):
            self._changed = True
            has_items = not {"--each-line", "--from-json"}.isdisjoint(own)
            task = _line_as_command(task[0], has_items=has_items)
        script = Path(task[0])
        if not self._dashes and os.path.isfile(script) and not _is_of_2009(script):
            mark, words = _directives(script)
            if words:
                self._notes.append(f"the lines {mark} of {script} are not read here")
                script_says = _Line(self._root, []).options_of_script(words)
                own = [*_without(script_says, own), *own]
                self._changed = True
            task = [*program(task[0]), *task[1:]]
        return before, own, task

    def _items(self, own: list[str], task: list[str]) -> tuple[list[str], list[str], list[str]]:
        """Translates the items that GNU parallel takes after `:::` and `::::`."""
        marks = [word for word in task if _SOURCE.fullmatch(word)]
        for mark in (":::", "::::"):
            if mark in marks:
                if len(marks) > 1:  # combinations of several sources
                    raise _NotUnderstood
                if not self._letters <= _PARALLEL_LETTERS or _OF_PARALLEL.search(" ".join(task)):
                    raise _NotUnderstood
                place = task.index(mark)
                values = task[place + 1 :]
                self._changed = True
                if mark == ":::":
                    lines = " ".join(map(_quoted, values))
                    before = [f"printf '%s\\n' {lines} | "]
                    return before, [*own, "--each-line", "-"], _with_item(task[:place])
                if len(values) == 1:
                    return [], [*own, "--each-line", values[0]], _with_item(task[:place])
        return [], own, task


def _together(options: list[str]) -> list[str]:
    """Multiplies several `--cpus`: the processes, and the processors of each, are one number."""
    places = [place for place, word in enumerate(options) if word == "--cpus"]
    numbers = [options[place + 1] for place in places]
    if len(places) < 2 or not all(map(str.isdecimal, numbers)):
        return options
    left = [
        word
        for place, word in enumerate(options)
        if place not in places and place - 1 not in places
    ]
    return ["--cpus", str(math.prod(map(int, numbers))), *left]


def _with_item(task: list[str]) -> list[str]:
    """Ends a command of GNU parallel with the item, unless that is in it already."""
    if any("{}" in word for word in task):
        return task
    return [f"{task[0]} {{}}"] if len(task) == 1 and " " in task[0] else [*task, "{}"]


def _line_as_command(line: str, *, has_items: bool) -> list[str]:
    """Splits a line that came as one word, or gives it to a shell."""
    if _SHELL_WORDS.search(line):
        return ["sh", "-c", line.replace("{}", '"$KESTREL_ITEM"') if has_items else line]
    try:
        return shlex.split(line)
    except ValueError:
        raise _NotUnderstood from None


def _is_job_file(task: Sequence[str]) -> bool:
    return Path(task[0]).suffix in JOB_FILE_SUFFIXES


def _without(options: list[str], others: list[str]) -> list[str]:
    """Returns options with their values, without those that `others` name as well."""
    named = {word.partition("=")[0] for word in others if word.startswith("-")}
    left: list[str] = []
    keeps = True
    for word in options:
        if word.startswith("-"):
            keeps = word.partition("=")[0] not in named
        if keeps:
            left.append(word)
    return left


def _is_of_2009(file: Path) -> bool:
    """Whether a file has a line that job files begin with, even if something in it is wrong."""
    return any(line.startswith("[job") for line in _lines(file))


def _directives(script: Path) -> tuple[str, list[str]]:
    """Reads the directives for another system in a script."""
    return directives(_lines(script))


def _lines(file: Path) -> list[str]:
    """Reads the first lines of a file; none if it cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []


def _may_select_jobs(word: str) -> bool:
    """Whether a word is a selection of jobs, or looks like a wrong one rather than a name."""
    try:
        parse_jobs(word)
    except UsageError:
        return not word[:1].isalpha()
    return True


def _next(rest: list[str]) -> tuple[str, list[str]]:
    if not rest:
        raise _NotUnderstood
    return rest[0], rest[1:]


def _known(command: click.Command) -> dict[str, bool]:
    """The options of a command by each of their names, and whether a value follows."""
    options = [each for each in command.params if isinstance(each, click.Option)]
    known = {
        name: not (option.is_flag or option.count)
        for option in options
        for name in (*option.opts, *option.secondary_opts)
    }
    return known | {"-h": False, "--help": False}


def _is_taken(command: click.Command, words: list[str]) -> bool:
    """Whether the command's own parser takes the words; no pool is asked."""
    latest: Callable[[], int] = lambda: 1  # noqa: E731
    context = click.Context(command, obj=Invocation())
    context.meta[LAST_JOB] = latest
    context.allow_interspersed_args = command.name not in ("submit", "map")
    try:
        click.Command.parse_args(command, context, list(words))
    except (UsageError, click.ClickException):
        return False
    return True


def _joined(words: Sequence[str]) -> str:
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """Quotes a word for a shell; placeholders need no quotes."""
    bare = re.sub(r"\{[ni]?\}", "x", word)
    return word if shlex.quote(bare) == bare else shlex.quote(word)
