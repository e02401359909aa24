"""Manual pages of all commands: their help, written as roff (man(7)) instead of plain text.

`python -m kestrelctl.cli.man_pages DIRECTORY` writes them; a wheel has them in `share/man/man1`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from kestrelctl.cli.main import kestrelctl
from kestrelctl.cli.show.screen import PROGRAM

#: More characters than any sentence has, so that none is cut off.
_WHOLE = 1000
_OPTION_NAME = re.compile(r"(?:^|(?<=[ ,/]))--?[\w-]+")


def man_pages(version: str) -> dict[str, str]:
    """The pages by their names: `kestrelctl-job-logs.1` is that of `kestrelctl job logs`.

    Args:
        version: that of Kestrel, for the foot of each page.
    """
    root = click.Context(kestrelctl, info_name=PROGRAM, **kestrelctl.context_settings)
    return {f"{_page_name(context)}.1": _page(context, version) for context in _walk(root)}


def _walk(context: click.Context) -> Iterator[click.Context]:
    """The contexts of a command and of all below it."""
    yield context
    for below in _contexts_below(context):
        yield from _walk(below)


def _contexts_below(context: click.Context) -> list[click.Context]:
    """The contexts of a group's commands, but for those of experiments, which no wheel has."""
    group = context.command
    if not isinstance(group, click.Group):
        return []
    found = [group.get_command(context, name) for name in group.list_commands(context)]
    return [
        click.Context(command, info_name=command.name, parent=context)
        for command in found
        if command is not None and not command.hidden and _is_ours(command)
    ]


def _is_ours(command: click.Command) -> bool:
    return getattr(command.callback, "__module__", "").partition(".")[0] == PROGRAM


def _page_name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _page(context: click.Context, version: str) -> str:
    name, summary = _page_name(context), context.command.get_short_help_str(_WHOLE)
    roff = _Roff()
    roff.line(f'.TH "{_escaped(name.upper())}" 1 "" "Kestrel {_escaped(version)}" "Kestrel"')
    roff.write_heading("Name")
    roff.line(f"{_escaped(name)} \\- {_escaped(summary[:1].lower() + summary[1:].rstrip('.'))}")
    context.command.format_help(context, roff)
    others = [each for each in (context.parent, *_contexts_below(context)) if each is not None]
    roff.write_heading("See also")
    for place, other in enumerate(others, start=1):
        comma = "," if place < len(others) else ""
        roff.line(f".BR {_escaped(_page_name(other))} (1){comma}")
    return roff.getvalue()


class _Roff(click.HelpFormatter):
    """Takes what makes up the help of a command, and writes it in the macros of man(7)."""

    def __init__(self) -> None:
        super().__init__()
        self._is_described = False

    def line(self, text: str) -> None:
        """Adds a line of roff as it is."""
        self.buffer.append(f"{text}\n")

    def write(self, string: str) -> None:
        """Adds a line that is shown as it stands: an example."""
        self.line(".nf")
        self.line(_text(string.strip("\n")))
        self.line(".fi")

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        self.write_heading("Synopsis")
        self.line(f"\\fB{_escaped(prog)}\\fR {_escaped(args)}")

    def write_heading(self, heading: str) -> None:
        self._is_described = self._is_described or heading not in ("Name", "Synopsis")
        self.line(f'.SH "{_escaped(heading.upper())}"')

    def write_paragraph(self) -> None:
        """Does nothing: macros make the space between paragraphs."""

    def write_text(self, text: str) -> None:
        if not self._is_described:
            self.write_heading("Description")
        for paragraph in re.split(r"\n\s*\n", text.strip()):
            self.line(".PP")
            self.line(_text(" ".join(paragraph.split())))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 0, col_spacing: int = 0
    ) -> None:
        for term, text in rows:
            self.line(".TP")
            self.line(_term(term))
            self.line(_text(" ".join(text.split())))


def _term(text: str) -> str:
    """An option with its value, or a command: its names are bold, the value is slanted."""
    if not text.startswith("-"):
        return f"\\fB{_escaped(text)}\\fR"
    parts: list[str] = []
    end = 0
    for found in _OPTION_NAME.finditer(text):
        parts += [_value(text[end : found.start()]), f"\\fB{_escaped(found[0])}\\fR"]
        end = found.end()
    return "".join([*parts, _value(text[end:])])


def _value(text: str) -> str:
    return f"\\fI{_escaped(text)}\\fR" if text.strip(" ,/") else _escaped(text)


def _text(text: str) -> str:
    """A line of text that no macro is read out of."""
    escaped = _escaped(text)
    return f"\\&{escaped}" if escaped[:1] in (".", "'", "") else escaped


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")


def main(words: Sequence[str]) -> None:
    """Writes all pages into a directory, which is made."""
    from kestrelctl.checkout import own_version

    directory = Path(words[0])
    directory.mkdir(parents=True, exist_ok=True)
    for name, page in man_pages(own_version()).items():
        (directory / name).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
