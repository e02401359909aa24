"""`kestrelctl flock policy …`: what is lent to other pools, and borrowed from them."""

from __future__ import annotations

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, Noun, pass_invocation
from kestrelctl.cli.show.command_output import CommandOutput, Listing
from kestrelctl.cli.show.grid import Column
from kestrelctl.cli.show.screen import Screen
from kestrelctl.core.model.flock_rule import DEFAULT_ORDER, FlockRule
from kestrelctl.core.model.worker.isolation import RUNGS
from kestrelctl.errors import UsageError
from kestrelctl.grammar.click_types import Number, WholeNumber
from kestrelctl.grammar.flock_words import cpus
from kestrelctl.grammar.quantities import duration, parse_duration
from kestrelctl.protocol.answers import FlockRules
from kestrelctl.protocol.requests import ListFlockRules, RemoveFlockRule, SetFlockRule

_MOST_CPUS = 1e9
_MOST_ORDER = 1_000_000


@click.group("policy", cls=Noun)
def policy() -> None:
    """List and set the rules for lending to other pools, and borrowing from them."""


@policy.command("set", cls=CliCommand)
@click.argument("name")
@click.option(
    "--lend/--borrow",
    "lends",
    default=None,
    help="Rule about this pool's machines (lend), or about those of others that its tasks use "
    "(borrow).",
)
@click.option("--allow/--deny", "allows", default=None, help="Allow or deny what the rule fits.")
@click.option(
    "--order",
    type=WholeNumber(0, _MOST_ORDER),
    default=DEFAULT_ORDER,
    show_default=True,
    metavar="N",
    help="Place of the rule: lower ones are asked first, those of one order by name.",
)
@click.option(
    "--neighbour",
    "pools",
    multiple=True,
    metavar="GLOB",
    help="Other pools that the rule fits; repeatable.  [default: all]",
)
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="GLOB",
    help="Users that the rule fits: an account, or the name before its @; repeatable.  "
    "[default: all]",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GLOB",
    help="Groups of users that the rule fits; repeatable.  [default: all]",
)
@click.option(
    "--requirements",
    metavar="EXPR",
    default="",
    help="Expression that must be true, with --lend of the job, with --borrow of the machine.",
)
@click.option(
    "--max-cpus",
    type=Number(0.0, _MOST_CPUS, min_open=True),
    metavar="N",
    help="Number of processors at once, for all pools that the rule fits together.  [default: "
    "no limit]",
)
@click.option(
    "--max-time",
    "max_seconds",
    type=parse_duration,
    metavar="TIME",
    help="Time that an attempt may run, with --lend; with --borrow, time limit that a task must "
    "have.  [default: no limit]",
)
@click.option(
    "--isolation",
    type=click.Choice(RUNGS),
    help="Isolation that tasks of others get at least, with --lend.",
)
@click.option(
    "--lease",
    "lease_seconds",
    type=parse_duration,
    metavar="TIME",
    help="Time that a loan may last.",
)
@pass_invocation
def set_(
    invocation: Invocation,
    name: str,
    lends: bool | None,
    allows: bool | None,
    order: int,
    pools: tuple[str, ...],
    users: tuple[str, ...],
    groups: tuple[str, ...],
    requirements: str,
    max_cpus: float | None,
    max_seconds: float | None,
    isolation: str | None,
    lease_seconds: float | None,
) -> None:
    """Set a rule, or replace the one of that name. For admins.

    The first rule that fits a task decides. A task that no rule fits is allowed; but as soon as one
    rule of that direction allows something, only what rules allow is allowed.
    """
    if lends is None or allows is None:
        raise UsageError(
            "a rule says what it is about and what it does",
            hint="write --lend or --borrow, and --allow or --deny",
        )
    rule = FlockRule(
        name=name,
        direction="lend" if lends else "borrow",
        action="allow" if allows else "deny",
        order=order,
        pools=pools,
        users=users,
        groups=groups,
        max_cpus=max_cpus,
        max_seconds=max_seconds,
        isolation=isolation or "",
        requirements=requirements,
        lease_seconds=lease_seconds,
    )
    invocation.change(SetFlockRule(rule=rule), lambda _: f"rule {name} is in force")


@policy.command("remove", cls=CliCommand)
@click.argument("name")
@pass_invocation
def remove(invocation: Invocation, name: str) -> None:
    """Remove a rule. For admins."""
    invocation.change(RemoveFlockRule(name=name), lambda _: f"rule {name} is removed")


class _Rules(Listing[FlockRule]):
    """The rules, and the decision on what no rule fits."""

    def __init__(self, found: FlockRules) -> None:
        columns: list[Column[FlockRule]] = [
            Column("NAME", lambda rule: rule.name),
            Column("ORDER", lambda rule: str(rule.order), right=True),
            Column("RULE", lambda rule: f"{rule.direction} {rule.action}"),
            Column("OF", _whom),
            Column("TERMS", _terms),
        ]
        nothing = "no rules: this pool lends to all others of its flock, and borrows from them"
        super().__init__(found.rules, columns, lambda rule: rule.name, nothing=nothing)
        self._found = found

    async def tabulate(self, screen: Screen) -> None:
        await super().tabulate(screen)
        if self._found.rules:
            rest = self._found.rest
            said = [f"{word} {'allow' if rest[word] else 'deny'}" for word in ("lend", "borrow")]
            screen.say(f"what no rule fits: {', '.join(said)}")


@policy.command("list", cls=CliCommand)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the rules in the order in which they are asked. The first that fits decides."""

    async def work(connection: Connection) -> CommandOutput:
        return _Rules(await ask(connection, ListFlockRules(), FlockRules))

    invocation.talk(work)


def _whom(rule: FlockRule) -> str:
    named = (("pool", rule.pools), ("user", rule.users), ("group", rule.groups))
    said = [f"{word} {', '.join(globs)}" for word, globs in named if globs]
    if rule.requirements:
        said.append(f"where {rule.requirements}")
    return "; ".join(said) or "all"


def _terms(rule: FlockRule) -> str:
    said = [
        cpus(rule.max_cpus) if rule.max_cpus is not None else "",
        f"up to {duration(rule.max_seconds)} each" if rule.max_seconds is not None else "",
        f"isolation {rule.isolation}" if rule.isolation else "",
        f"leases of {duration(rule.lease_seconds)}" if rule.lease_seconds is not None else "",
    ]
    return ", ".join(filter(None, said))
