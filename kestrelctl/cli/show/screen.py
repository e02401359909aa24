"""Prints for a command: data on standard output, everything else on standard error."""

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

#: The beginning of a command that talks to a pool. The ones excluded here do not talk to a pool,
#: have no `--pool` or one with another meaning, or name the pool themselves.
_TALKS = re.compile(
    r"\bkestrelctl (?=[a-z])"
    r"(?!(?:up|down|manager (?:run|backup|restore|migrate)|fleet|bench|dashboards|context"
    r"|worker (?:environment|join|run|service))"
    r"(?![a-z-]))"
)
#: The beginning of any command. The ones excluded are for another machine, without this checkout.
_CALLED = re.compile(r"\bkestrelctl (?=[a-z-])(?!worker (?:environment|join)(?![a-z-]))")


def as_called(text: str, program: str, pool: str) -> str:
    """Rewrites the commands in a text so that they begin as the user's own did.

    Args:
        program: the name the user called the program by, quoted for a shell.
        pool: the pool as the user named it; empty for the usual one.
    """
    if pool:
        text = _TALKS.sub(lambda found: f"{found[0]}--pool {shlex.quote(pool)} ", text)
    return _CALLED.sub(lambda _: f"{program} ", text)


#: The usual name of the command.
PROGRAM = "kestrelctl"
#: Select Graphic Rendition (ECMA-48, 8.3.117).
BOLD, DIM, RED, GREEN, YELLOW, CYAN = (f"\x1b[{number}m" for number in (1, 2, 31, 32, 33, 36))
_PLAIN = "\x1b[0m"


class NobodyReads(Exception):
    """Says that nobody reads standard output now. No OSError, which click takes for its own."""


class Mode(enum.StrEnum):
    """The ways in which data are printed (`-o`)."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    QUIET = "quiet"

    @property
    def is_json(self) -> bool:
        return self in (Mode.JSON, Mode.JSONL)


def parse_mode(text: str) -> Mode:
    """Returns the mode of that name.

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
    """The place where a command prints.

    Attributes:
        quiet: whether it prints nothing but errors on standard error.
        verbose: whether it prints more on standard error, tracebacks included.
        pool: the pool that was asked for, which commands in texts for people name too; empty for
            the usual one.
        program: the name the user called the program by, in a form that can be pasted into a shell.
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
        """Makes the screen that `KESTREL_OUTPUT` and `NO_COLOR` (https://no-color.org) ask for."""
        screen = cls(color=not os.environ.get("NO_COLOR"))
        if mode := os.environ.get("KESTREL_OUTPUT"):
            screen.mode = parse_mode(mode)
        return screen

    def write(self, text: str) -> None:
        """Writes data.

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
        """Writes data that need not be text.

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

    def write_lines_at_once(self) -> None:
        """Has each line of data go out when it ends, also into a pipe: the next may be long in
        coming.
        """
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def write_error_bytes(self, data: bytes) -> None:
        """Passes on what something else has written to its standard error."""
        with contextlib.suppress(OSError):  # nobody reads it
            sys.stderr.flush()
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()

    def begin_line(self) -> None:
        """Ends the line of the data before, if they did not end it.

        Raises:
            NobodyReads: whoever read them has gone.
        """
        if self._is_mid_line:
            self.write("\n")

    def for_people(self, text: str) -> str:
        """Rewrites a text: its commands begin as the user's own did, and are for the same pool."""
        if not self.pool and self.program == PROGRAM:
            return text
        return as_called(text, self.program, self.pool)

    def say(self, text: str) -> None:
        """Makes a remark to people; programs that read JSON are not bothered with it."""
        if not self.quiet and not self.mode.is_json:
            self._remark(_harmless(self.for_people(text)))

    def detail(self, text: str) -> None:
        """Makes a remark to users who asked for more (`-v`)."""
        if self.verbose:
            self._remark(_paint(DIM, _harmless(text), self.color and sys.stderr.isatty()))

    def warn(self, message: str, *, cause: str | None = None, hint: str | None = None) -> None:
        """Warns of something that is probably not as wanted, though it is no error."""
        if not self.quiet:
            self._trouble("warning", YELLOW, {"message": message, "cause": cause, "hint": hint})

    def fail(self, error: KestrelError) -> None:
        """Prints an error, as `error:`, `cause:` and `hint:`, or as one JSON object."""
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
        """Colours data, if somebody looks at them and wants that."""
        return _paint(color, text, self.color and self.is_terminal)

    def _trouble(self, kind: str, color: str, fields: dict[str, str | None]) -> None:
        if self.mode.is_json:
            self._remark(json.dumps({kind: fields}))
            return
        from kestrelctl.core.model.wording import one_line  # here: `--help` does not need it

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
        """Writes lines to standard error: after the data before them, if both go to one place, and
        from the start of a line.
        """
        with contextlib.suppress(OSError):  # the error is reported when the command ends
            sys.stdout.flush()
        with contextlib.suppress(OSError):  # nobody reads it
            if self._is_mid_line and _are_one_file():
                sys.stderr.write("\n")
                self._is_mid_line = False
            sys.stderr.write(f"{text}\n")


def _harmless(text: str) -> str:
    """Lines that tell a terminal nothing else: names, items and reasons are others' words."""
    from kestrelctl.core.model.wording import one_line  # here: `--help` does not need it

    return "\n".join(map(one_line, text.split("\n")))


def _are_one_file() -> bool:
    """Whether standard output and standard error end in one terminal, file or pipe."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):  # one of them is no file
        return False


def _paint(color: str, text: str, wanted: bool) -> str:
    return f"{color}{text}{_PLAIN}" if wanted else text
