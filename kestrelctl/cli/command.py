"""The parts of every command: where it prints, which pool it talks to, the options for both."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import click

from kestrelctl.cli.show.screen import PROGRAM, Screen, parse_mode
from kestrelctl.errors import UsageError

if TYPE_CHECKING:
    from kestrelctl.access.connection import Connection
    from kestrelctl.access.context import Context
    from kestrelctl.access.share import Share
    from kestrelctl.cli.redial import Redial
    from kestrelctl.cli.show.command_output import CommandOutput
    from kestrelctl.client.logs import LogReader
    from kestrelctl.protocol.request import Changed
    from kestrelctl.protocol.requests import AnyRequest


class OpenPool(Protocol):
    """Opens a connection to a pool by its name; `connection.open_pool`, or a test's own."""

    def __call__(
        self, wanted: str, *, as_admin: bool = False
    ) -> AbstractAsyncContextManager[Connection]: ...


def _open_pool(wanted: str, *, as_admin: bool = False) -> AbstractAsyncContextManager[Connection]:
    from kestrelctl.access.connection import open_pool

    return open_pool(wanted, as_admin=as_admin)


def open_briefly(wanted: str, *, as_admin: bool = False) -> AbstractAsyncContextManager[Connection]:
    from kestrelctl.access.connection import open_briefly

    return open_briefly(wanted, as_admin=as_admin)


def _find_context(wanted: str) -> Context:
    from kestrelctl.access.context import find_context

    return find_context(wanted)


def _open_share(connection: Connection | None, context: Context) -> Share:
    from kestrelctl.access.share import open_share

    return open_share(connection, context)


@dataclass(slots=True)
class Invocation:
    """One invocation of kestrelctl.

    Attributes:
        pool: name of the pool that was asked for; empty for the usual one.
        open_briefly: opens a connection for a command of a moment; None if all use `open_pool`.
    """

    screen: Screen = field(default_factory=Screen)
    pool: str = ""
    open_pool: OpenPool = _open_pool
    open_briefly: OpenPool | None = None
    find_context: Callable[[str], Context] = _find_context
    open_share: Callable[[Connection | None, Context], Share] = _open_share
    now: Callable[[], float] = time.time

    def downloads(self) -> Share:
        """Opens the share that the files of the pool come from."""
        return self.open_share(None, self.find_context(self.pool))

    def log_reader(self) -> LogReader:
        """Makes what reads outputs of the pool's tasks."""
        from kestrelctl.client.logs import LogReader

        return LogReader(self.downloads, lambda: self.find_context(self.pool).directory)

    def talk(
        self,
        work: Callable[[Connection], Awaitable[CommandOutput | None]],
        *,
        as_admin: bool = False,
        briefly: bool = False,
    ) -> None:
        """Connects to the pool, does the work there, and prints what it found.

        Args:
            briefly: whether the work is that of a moment (see `at_once`).
        """

        async def whole(open_pool: OpenPool) -> None:
            async with open_pool(self.pool, as_admin=as_admin) as connection:
                found = await work(connection)
                if found is not None:
                    await self.show(found)

        self._run(whole, briefly=briefly)

    def talk_again(
        self,
        work: Callable[[Redial], Awaitable[CommandOutput | None]],
        *,
        as_admin: bool = False,
        briefly: bool = False,
    ) -> None:
        """Does the same as `talk`, with a connection that the work can renew."""
        from kestrelctl.cli.redial import Redial

        async def whole(open_pool: OpenPool) -> None:
            def opened() -> AbstractAsyncContextManager[Connection]:
                return open_pool(self.pool, as_admin=as_admin)

            async with Redial(opened, self.screen) as redial:
                found = await work(redial)
                if found is not None:
                    await self.show(found)

        self._run(whole, briefly=briefly)

    def _run(
        self, whole: Callable[[OpenPool], Coroutine[Any, Any, None]], *, briefly: bool
    ) -> None:
        if briefly and self.open_briefly is not None and not self.screen.verbose:
            from kestrelctl.at_once import TakesLonger, at_once

            try:
                at_once(whole(self.open_briefly))
                return
            except TakesLonger:
                pass
        import asyncio

        self._set_up_logs()
        asyncio.run(whole(self.open_pool))

    def change(
        self,
        request: AnyRequest,
        said: Callable[[Changed], str],
        *,
        counts_workers: bool = False,
        as_admin: bool = True,
    ) -> None:
        """Has the pool set or remove something that has a name, and prints what came of it.

        It is sent again if its answer is lost, unless it removes something.

        Args:
            said: makes the sentence for people.
            counts_workers: whether the answer says how many workers it concerns.
        """
        from kestrelctl.cli.show.command_output import Record
        from kestrelctl.protocol.setting_requests import RemoveSetting

        async def work(redial: Redial) -> CommandOutput:
            done = await redial.change(request, twice=not isinstance(request, RemoveSetting))
            data = {"changed": done.what} | ({"workers": done.tasks} if counts_workers else {})
            return Record(done.what[0], data, [said(done)])

        self.talk_again(work, as_admin=as_admin)

    def _set_up_logs(self) -> None:
        if self.screen.verbose:
            from kestrelctl import logs

            logs.set_up("text", verbose=True)

    async def show(self, output: CommandOutput) -> None:
        """Prints what a command found."""
        from kestrelctl.cli.show.command_output import show

        await show(output, self.screen)


#: More characters than any sentence has, so that none is cut off.
_WHOLE = 1000

pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


def _on_output(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Invocation).screen.mode = parse_mode(value)


def _on_no_color(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).screen.color = False


def _on_quiet(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).screen.quiet = True


def _on_verbose(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).screen.verbose = True


def _on_pool(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        invocation = ctx.ensure_object(Invocation)
        invocation.pool = invocation.screen.pool = value


class _MayBeEmpty(click.ParamType):
    name = "text"


#: The type of options for which an empty text means something.
MAY_BE_EMPTY = _MayBeEmpty()


class CommonOption(click.Option):
    """An option that many commands have; it sets something of the invocation.

    It is read before the other options, so that it holds for what these ask of the pool.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, is_eager=True, **kwargs)


def pool_option(help_text: str) -> CommonOption:
    """Makes `--pool`, which says which pool a command is about."""
    return CommonOption(
        ["--pool"], metavar="NAME", expose_value=False, callback=_on_pool, help=help_text
    )


def common_options(*, talks: bool, taken: Collection[str] = ()) -> list[click.Parameter]:
    """Makes the options of every command; `--pool` only for those that are about a pool.

    Args:
        talks: whether the command talks to a pool, or starts, stops or copies one.
        taken: names that mean something else to the command.
    """
    options: list[click.Parameter] = [
        CommonOption(
            ["output", *(name for name in ("-o", "--output") if name not in taken)],
            metavar="MODE",
            expose_value=False,
            callback=_on_output,
            help="Print as table, wide, json, jsonl or quiet (names only).  [default: table] [env: "
            "KESTREL_OUTPUT]",
        ),
        CommonOption(
            ["--no-color"],
            is_flag=True,
            expose_value=False,
            callback=_on_no_color,
            help="Print without colours. [env: NO_COLOR]",
        ),
        CommonOption(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_on_quiet,
            help="Print nothing but errors on standard error.",
        ),
        CommonOption(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            callback=_on_verbose,
            help="Print more on standard error.",
        ),
    ]
    if talks:
        what = "Pool to talk to: one of `up`, or of the configuration. [env: KESTREL_POOL]"
        options.insert(0, pool_option(what))
    return options


class _Helped(click.Command):
    """A command whose help shows examples, and its options under headings.

    Args:
        examples: command lines that work when they are pasted in this order.
        option_sections: heading -> the options under it (`"array each-line"`), the most used first;
            options under none come last.
    """

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.BadOptionUsage as error:
            error.ctx = error.ctx or click.Context(self, info_name=info_name, parent=parent)
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        self._refuse_empty(ctx, list(args))
        return super().parse_args(ctx, args)

    def _refuse_empty(self, ctx: click.Context, args: list[str]) -> None:
        """Refuses an option with nothing in it, which would be passed over: for what `--pool ""`
        or `--requirements ""` leave out, the usual pool and any worker would do.
        """
        if ctx.resilient_parsing or not ("" in args or any(word.endswith("=") for word in args)):
            return
        found, _, _ = self.make_parser(ctx).parse_args(args)
        for param in self.params:
            value = found.get(param.name or "")
            is_empty = value == "" or (isinstance(value, list) and "" in value)
            if is_empty and isinstance(param, click.Option) and param.type is not MAY_BE_EMPTY:
                name = next((n for n in param.opts if n.startswith("--")), param.opts[0])
                raise UsageError(
                    f"{name} is empty",
                    cause="a shell makes that of a variable that is not set",
                    hint="leave the option out if nothing is meant",
                )

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        option_sections: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.option_sections = option_sections or {}

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        if self.examples:
            program = ctx.find_root().info_name or PROGRAM
            with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
                for example in self.examples:
                    formatter.write(f"  {example.replace(PROGRAM, program)}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: dict[str, tuple[str, str]] = {}
        common: dict[str, tuple[str, str]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                name = long_name(param)
                is_common = isinstance(param, CommonOption) or name == "help"
                (common if is_common else own)[name] = record
        write_sections(formatter, self.option_sections, own, rest="Options")
        write_sections(formatter, {}, common, rest="Common options")


def long_name(option: click.Option) -> str:
    """The first name of an option that is a word, or else its letter, without dashes."""
    return next((n for n in option.opts if n.startswith("--")), option.opts[0]).lstrip("-")


def write_sections(
    formatter: click.HelpFormatter,
    sections: Mapping[str, str],
    rows: Mapping[str, tuple[str, str]],
    *,
    rest: str,
) -> None:
    """Writes a table for each heading.

    Args:
        sections: heading -> the names of its rows, divided by spaces.
        rows: name -> its two columns.
        rest: the heading of the rows under no other; "Other options" if there are other headings.
    """
    left = dict(rows)
    for heading, names in sections.items():
        with formatter.section(heading):
            formatter.write_dl([left.pop(name) for name in names.split() if name in left])
    if left:
        with formatter.section(f"Other {rest.lower()}" if sections else rest):
            formatter.write_dl(list(left.values()))


class CliCommand(_Helped):
    """A command with the common options, listed after its own.

    Args:
        talks: whether it is about the pool of `--pool`; otherwise it refuses that option.
    """

    def __init__(self, *args: Any, talks: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        taken = {name for param in self.params for name in param.opts}
        self.params.extend(common_options(talks=talks, taken=taken))
        self._talks = talks

    def invoke(self, ctx: click.Context) -> Any:
        if not self._talks and ctx.ensure_object(Invocation).pool:
            raise UsageError(
                f"--pool before `{ctx.command_path}` means nothing to it",
                cause="it neither talks to a pool of `up` or of the configuration, nor changes one",
                hint=f"{ctx.command_path} --help",
            )
        return super().invoke(ctx)


class Noun(_Helped, click.Group):
    """A group of commands about one kind of thing.

    Args:
        command_sections: heading -> the commands under it, the most used first; without any, all
            are listed in the order in which they were added.
    """

    command_class = CliCommand

    def __init__(
        self, *args: Any, command_sections: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.no_args_is_help = True
        self.command_sections = command_sections or {}
        self._modules: dict[str, str] = {}

    def add_modules(self, modules: Mapping[str, tuple[str, str]]) -> None:
        """Adds commands whose modules are imported when they are wanted.

        Args:
            modules: command -> (its module and name, as `module:name`; what it does).
        """
        for name, (place, summary) in modules.items():
            self.commands[name] = click.Command(name, short_help=summary)
            self._modules[name] = place

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._modules.get(cmd_name)
        if place is not None:
            module, _, name = place.partition(":")
            command = getattr(import_module(module), name)
            assert isinstance(command, click.Command)
            self.commands[cmd_name] = command
            del self._modules[cmd_name]
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            from kestrelctl.grammar.nearest import did_you_mean

            meant = did_you_mean(args[0], self.list_commands(ctx))
            raise UsageError(
                f"there is no command {args[0]!r}", hint=meant or f"{ctx.command_path} --help"
            )
        return super().resolve_command(ctx, args)

    def commands_with(self, option: str) -> list[str]:
        """Names the commands of this group that have an option, given with its dashes."""
        ctx = click.Context(self)
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        return [
            name
            for name, each in found.items()
            if each is not None and any(option in param.opts for param in each.params)
        ]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def summaries(self) -> dict[str, str]:
        """Describes each command in one sentence."""
        return {name: each.get_short_help_str(_WHOLE) for name, each in self.commands.items()}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = {name: (name, summary) for name, summary in self.summaries().items()}
        write_sections(formatter, self.command_sections, rows, rest="Commands")
