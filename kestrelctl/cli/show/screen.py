"""What a command prints, and where: data on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import re
import shlex
import sys
from dataclasses import dataclass, field

from kestrelctl.errors import KestrelError, UsageError

#: The beginning of a command that talks to a pool. These do not, and have no such option or one
#: that means something else, or name the pool themselves.
_TALKS = re.compile(
    r"\bkestrelctl (?=[a-z])"
    r"(?!(?:up|down|manager|fleet|bench|dashboards|worker (?:environment|join|run|service))"
    r"(?![a-z-]))"
)
#: The beginning of any command. These are for another machine, which has no such checkout.
_CALLED = re.compile(r"\bkestrelctl (?=[a-z-])(?!worker (?:environment|join)(?![a-z-]))")


def as_called(text: str, program: str, pool: str) -> str:
    """A text whose commands begin as the user's own did.

    Args:
        program: as what the user called it, quoted for a shell.
        pool: as the user named it; empty for the usual one.
    """
    if pool:
        text = _TALKS.sub(lambda found: f"{found[0]}--pool {shlex.quote(pool)} ", text)
    return _CALLED.sub(lambda _: f"{program} ", text)


#: The command, as it is called if nothing else is said.
PROGRAM = "kestrelctl"
#: Select Graphic Rendition (ECMA-48, 8.3.117).
BOLD, DIM, RED, GREEN, YELLOW, CYAN = (f"\x1b[{number}m" for number in (1, 2, 31, 32, 33, 36))
_PLAIN = "\x1b[0m"


class NobodyReads(Exception):
    """Standard output was closed at its other end. No OSError, which click takes for its own."""


class Mode(enum.StrEnum):
    """How data are printed (`-o`)."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    QUIET = "quiet"

    @property
    def is_json(self) -> bool:
        return self in (Mode.JSON, Mode.JSONL)


def parse_mode(text: str) -> Mode:
    """The mode of that name.

    Raises:
        UsageError: there is none.
    """
    try:
        return Mode(text)
    except ValueError:
        raise UsageError(
            f"not an output mode: {text!r}", hint=f"choose from {', '.join(Mode)}"
        ) from None


@dataclass(slots=True)
class Screen:
    """Where a command prints.

    Attributes:
        quiet: nothing on standard error but errors.
        verbose: more on standard error, tracebacks included.
        pool: the one that was asked for, which commands in texts for people ask, too; empty for the
            usual one.
        program: as what the user called the program, in a form that can be pasted into a shell.
    """

    mode: Mode = Mode.TABLE
    color: bool = True
    quiet: bool = False
    verbose: bool = False
    pool: str = ""
    program: str = PROGRAM
    #: Whether the data so far end in the middle of a line.
    _is_mid_line: bool = field(default=False, init=False)

    @classmethod
    def of_environment(cls) -> Screen:
        """What `KESTREL_OUTPUT` and `NO_COLOR` (https://no-color.org) ask for."""
        screen = cls(color=not os.environ.get("NO_COLOR"))
        if mode := os.environ.get("KESTREL_OUTPUT"):
            screen.mode = parse_mode(mode)
        return screen

    def write(self, text: str) -> None:
        """Data.

        Raises:
            NobodyReads: whoever read them has gone.
        """
        try:
            sys.stdout.write(text)
        except BrokenPipeError:
            raise NobodyReads from None
        if line := text.removesuffix(_PLAIN):
            self._is_mid_line = not line.endswith("\n")

    def write_bytes(self, data: bytes) -> None:
        """Data that need not be text.

        Raises:
            NobodyReads: whoever read them has gone.
        """
        try:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise NobodyReads from None
        if data:
            self._is_mid_line = not data.endswith(b"\n")

    def begin_line(self) -> None:
        """Ends the line of the data before, if they do not.

        Raises:
            NobodyReads: whoever read them has gone.
        """
        if self._is_mid_line:
            self.write("\n")

    def for_people(self, text: str) -> str:
        """A text in which commands are called as the user called this one, for the same pool."""
        if not self.pool and self.program == PROGRAM:
            return text
        pass  # not for `--help` either

        return as_called(text, self.program, self.pool)

    def say(self, text: str) -> None:
        """A remark for people; programs that read JSON are not bothered with it."""
        if not self.quiet and not self.mode.is_json:
            self._remark(self.for_people(text))

    def detail(self, text: str) -> None:
        """A remark for those who asked for more (`-v`)."""
        if self.verbose:
            self._remark(_paint(DIM, text, self.color and sys.stderr.isatty()))

    def warn(self, message: str, *, cause: str | None = None, hint: str | None = None) -> None:
        """Something that is probably not as wanted, though it is no error."""
        if not self.quiet:
            self._trouble("warning", YELLOW, {"message": message, "cause": cause, "hint": hint})

    def fail(self, error: KestrelError) -> None:
        """An error, as `error:`, `cause:` and `hint:`, or as one JSON object."""
        fields = {"message": error.message, "cause": error.cause, "hint": error.hint}
        self._trouble("error", RED, {"code": error.code, **fields})

    @property
    def is_table(self) -> bool:
        """Whether data are printed for people."""
        return self.mode in (Mode.TABLE, Mode.WIDE)

    @property
    def is_terminal(self) -> bool:
        """Whether somebody looks at the data."""
        return sys.stdout.isatty()

    def paint(self, color: str, text: str) -> str:
        """Data in colour, if somebody looks at them and wants it."""
        return _paint(color, text, self.color and self.is_terminal)

    def _trouble(self, kind: str, color: str, fields: dict[str, str | None]) -> None:
        if self.mode.is_json:
            self._remark(json.dumps({kind: fields}))
            return
        from kestrelctl.grammar.one_line import one_line  # not for `--help`, which has no trouble

        label = _paint(color, f"{kind}:", self.color and sys.stderr.isatty())
        lines = [f"{label} {one_line(fields['message'] or '')}"]
        known = ((key, fields[key]) for key in ("cause", "hint"))
        for key, text in known:
            if text:
                first, *rest = self.for_people(text).split("\n")
                lines.append(f"{key}: {one_line(first)}")
                lines += [f"  {one_line(each)}" for each in rest]
        self._remark("\n".join(lines))

    def _remark(self, text: str) -> None:
        """Lines for standard error: below the data before them, where both are read in one place,
        and beginning at the start of a line.
        """
        with contextlib.suppress(OSError):  # it is told when the command ends
            sys.stdout.flush()
        if self._is_mid_line and _are_one_file():
            sys.stderr.write("\n")
            self._is_mid_line = False
        sys.stderr.write(f"{text}\n")


def _are_one_file() -> bool:
    """Whether standard output and standard error end in one terminal, file or pipe."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):  # one of them is no file
        return False


def _paint(color: str, text: str, wanted: bool) -> str:
    return f"{color}{text}{_PLAIN}" if wanted else text
