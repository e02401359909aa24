"""The `kestrelctl` command: finds a command's module, turns errors into words and a status.

Modules are imported when their command runs: `kestrelctl --help` and `--version` import none.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from kestrelctl import garbage
from kestrelctl.cli.command import Invocation, Noun, common_options, open_briefly
from kestrelctl.cli.show.screen import PROGRAM, Mode, NobodyReads, Screen
from kestrelctl.errors import KestrelError, NoSpace, UsageError

#: Command -> (its module and name, what it does).
COMMANDS: dict[str, tuple[str, str]] = {
    "up": (
        "kestrelctl.cli.local:up",
        "Start a pool on this machine, for you alone.",
    ),
    "submit": (
        "kestrelctl.cli.submit.commands:submit",
        "Run a command as a job of one or many tasks.",
    ),
    "map": (
        "kestrelctl.cli.map.commands:map_inputs",
        "Run a command for each input, and print what it writes, in the manner of GNU parallel.",
    ),
    "job": (
        "kestrelctl.cli.job.commands:job",
        "List jobs, wait for them, read their output, cancel them.",
    ),
    "top": (
        "kestrelctl.cli.top.commands:top",
        "Watch the pool: workers, jobs, rates, and why tasks wait.",
    ),
    "down": (
        "kestrelctl.cli.local:down",
        "Stop a pool on this machine; `up` goes on with its jobs.",
    ),
    "doctor": (
        "kestrelctl.cli.doctor:doctor",
        "Check the way to the pool, and the pool.",
    ),
    "context": (
        "kestrelctl.cli.context:context",
        "Add, list and choose the pools that commands talk to.",
    ),
    "pool": (
        "kestrelctl.cli.pool.commands:pool",
        "Show the state of the pool; set licences and policies.",
    ),
    "worker": (
        "kestrelctl.cli.worker.commands:worker",
        "List and drain workers; run one, or let a machine join as one.",
    ),
    "user": (
        "kestrelctl.cli.user.commands:user",
        "List users and what they have used; set shares and mail.",
    ),
    "group": (
        "kestrelctl.cli.user.groups:group",
        "List groups of users, and set their weights and limits.",
    ),
    "trigger": (
        "kestrelctl.cli.trigger:trigger",
        "List, test and switch rules that act by themselves.",
    ),
    "manager": (
        "kestrelctl.cli.manager.commands:manager",
        "Run the manager of a pool; copy its store.",
    ),
    "fleet": (
        "kestrelctl.cli.fleet.commands:fleet",
        "Inspect and restart the hosts of an Ansible inventory.",
    ),
    "environment": (
        "kestrelctl.cli.environment:environment",
        "List, start and stop workers that start on demand.",
    ),
    "dashboards": (
        "kestrelctl.cli.dashboards:dashboards",
        "Copy dashboards to a Grafana server, and back.",
    ),
    "flock": (
        "kestrelctl.cli.flock.commands:flock",
        "Share idle machines with other pools, by rules that you set.",
    ),
    "bench": (
        "kestrelctl.cli.bench:bench",
        "Measure a pool made for it on this machine, or with --pool one that runs.",
    ),
}
#: Heading -> the commands under it.
SECTIONS = {
    "First commands": "up submit job top down",
    "In the manner of GNU parallel": "map",
    "Which pool, and how it is": "context doctor",
    "Workers and users of a pool": "pool worker user group trigger",
    "A pool on many machines": "manager fleet environment dashboards",
    "Sharing machines with other pools": "flock",
    "Measuring": "bench",
}

_INTERRUPTED = 130
_BROKEN_PIPE = 141


class Root(Noun):
    """Reports errors the same way for all commands."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        """Runs a command line and exits with its status (docs/exit-codes.md)."""
        args = sys.argv[1:] if args is None else list(args)
        extra["standalone_mode"] = False
        invocation = extra.pop("obj", None) or Invocation(open_briefly=open_briefly)
        invocation.screen.program = extra.get("prog_name") or PROGRAM
        sys.exit(
            _status_of(
                lambda: super(Root, self).main(args, obj=invocation, **extra), invocation, args
            )
        )


def _status_of(run: Callable[[], object], invocation: Invocation, args: Sequence[str]) -> int:
    screen = invocation.screen
    try:
        environment = Screen.of_environment()
        screen.mode, screen.color = environment.mode, environment.color
        status = run()
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except KestrelError as error:
        screen.detail(_traceback())
        screen.fail(_respelled(error, args))
        return error.exit_status
    except click.exceptions.NoArgsIsHelpError as error:
        screen.write(f"{error.format_message()}\n")
        sys.stdout.flush()
        return 0
    except click.ClickException as error:
        screen.mode = _mode_wanted(args) or screen.mode
        found = _respelled(_usage_error(error), args)
        screen.fail(found)
        return found.exit_status
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except (NobodyReads, BrokenPipeError):
        _forget_stdout()
        return _BROKEN_PIPE
    except Exception as error:
        screen.detail(_traceback())
        unexpected = _unexpected(error)
        screen.fail(unexpected)
        return unexpected.exit_status
    finally:
        try:
            sys.stdout.flush()
        except OSError:  # Python would try once more at its end, and make that the exit status
            _forget_stdout()


def _unexpected(error: Exception) -> KestrelError:
    if isinstance(error, ModuleNotFoundError) and error.name == "classad2":
        from kestrelctl.missing_package import no_classads

        return no_classads()
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return KestrelError(f"{os.fsdecode(error.filename)} cannot be used", cause=error.strerror)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(
            "there is no room for what is to be written",
            cause=error.strerror,
            hint="it is the disk of the output, or that of temporary files, which TMPDIR names",
        )
    return KestrelError(
        "this should not have happened",
        cause=f"{type(error).__name__}: {error}",
        hint="with -v it says where",
    )


def _respelled(error: KestrelError, args: Sequence[str]) -> KestrelError:
    """Adds to an error the line as we write it, if its words are those of another system."""
    if not isinstance(error, UsageError):
        return error
    from kestrelctl.cli.other_systems import spelled

    found = spelled(kestrelctl, args)
    if found is None:
        return error
    cause = "; ".join(found.notes) or error.cause
    return UsageError(error.message, cause=cause, hint=found.hint)


def _usage_error(error: click.ClickException) -> UsageError:
    hint = None
    ctx = getattr(error, "ctx", None)
    if ctx is not None:
        hint = f"{ctx.command_path} --help"
    message = error.format_message()
    if isinstance(error, click.NoSuchOption) and ctx is not None:
        message = f"no such option {error.option_name!r}"
        hint = _option_meant(error.option_name, ctx) or hint
    elif isinstance(error, click.BadOptionUsage) and ctx is not None:
        hint = _option_as_written(error.option_name, ctx) or hint
    message = message.rstrip(".")
    return UsageError(message[:1].lower() + message[1:], hint=hint)


def _option_as_written(name: str, ctx: click.Context) -> str | None:
    """Says how an option is written, with what follows it."""
    for param in ctx.command.params:
        if isinstance(param, click.Option) and name in (*param.opts, *param.secondary_opts):
            value = "" if param.is_flag or param.count else f" {param.make_metavar(ctx)}"
            return f"write {name}{value}"
    return None


def _option_meant(name: str, ctx: click.Context) -> str | None:
    """Finds the option of this command that is like an unknown one, or who has the unknown one."""
    from kestrelctl.grammar.nearest import did_you_mean

    own = {each for param in ctx.command.params for each in (*param.opts, *param.secondary_opts)}
    meant = did_you_mean(name, sorted(each for each in own if each.startswith("--")))
    group = ctx.parent.command if ctx.parent is not None else None
    if meant or not isinstance(group, Noun) or isinstance(group, Root):
        return meant
    place = ctx.command_path.rpartition(" ")[0]
    others = [f"`{place} {each}`" for each in group.commands_with(name)]
    return f"{name} is an option of {' and '.join(others)}" if others else None


def _mode_wanted(args: Sequence[str]) -> Mode | None:
    """Finds the output mode on a command line that could not be parsed."""
    words = list(args[: args.index("--")] if "--" in args else args)
    for index, word in enumerate(words):
        if word in ("-o", "--output"):
            value = words[index + 1] if index + 1 < len(words) else ""
        elif word.startswith("--output="):
            value = word.partition("=")[2]
        elif word.startswith("-o"):
            value = word[2:]
        else:
            continue
        if value in list(Mode):
            return Mode(value)
    return None


def _forget_stdout() -> None:
    """Discards what is still to be written: nobody reads it, or there is no room for it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _traceback() -> str:
    import traceback

    return traceback.format_exc()


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from kestrelctl.checkout import own_version

        click.echo(f"kestrelctl {own_version()}")
        context.exit()


@click.group(
    cls=Root,
    params=common_options(talks=True),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    command_sections=SECTIONS,
    examples=(
        "kestrelctl up",
        "kestrelctl submit --array 1-3 --wait -- echo hello from task {}",
        "kestrelctl job logs last --all",
    ),
    epilog="More: add --help to any command, such as `job --help`; docs/cli.md explains them all.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def kestrelctl() -> None:
    """Run many short tasks on a pool of machines that come and go."""


kestrelctl.add_modules(COMMANDS)


def main() -> NoReturn:
    """The entry point of the `kestrelctl` script."""
    garbage.seldom()
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    try:
        kestrelctl.main(prog_name=_called_as(), complete_var="_KESTRELCTL_COMPLETE")
    finally:
        garbage.forgo()


def _called_as() -> str:
    """The name the user called the program by: `./kestrel` hands it over in the environment."""
    called = os.environ.pop("KESTREL_CALLED_AS", "")  # not for what this program starts
    if not called:
        return PROGRAM
    import shlex

    return shlex.quote(called)


def _open_closed_streams() -> None:
    """Opens /dev/null in place of each stream that was closed before the start (`2>&-`).

    Python has None for such a stream, and the next file that is opened would get its number.
    """
    while (null := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(null, True)
    os.close(null)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
