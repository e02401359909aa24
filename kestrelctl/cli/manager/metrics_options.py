"""The options that say where metrics are served, and to whom."""

from __future__ import annotations

import click

from kestrelctl.cli.command import MAY_BE_EMPTY
from kestrelctl.grammar.quantities import split_words


def _readers(
    _ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns the addresses, one by one. Raises UsageError if one is no address."""
    from kestrelctl.metrics.readers import Readers

    addresses = split_words(given)
    Readers(addresses)
    return addresses


def _address(_ctx: click.Context, _option: click.Parameter, text: str) -> str:
    """Returns it. Raises UsageError if it is no address."""
    from kestrelctl.metrics.endpoint import parse_address

    if text:
        parse_address(text)
    return text


#: For daemons: nothing is served unless it is given.
metrics_address = click.option(
    "--metrics",
    type=MAY_BE_EMPTY,
    default="",
    metavar="HOST:PORT",
    callback=_address,
    help="Serve metrics for Prometheus at this address.  [default: off]",
)
metrics_allow = click.option(
    "--metrics-allow",
    multiple=True,
    metavar="ADDRESS",
    callback=_readers,
    help="Address that may read the metrics from another machine: 192.0.2.0/24; comma or "
    "repeated.  [default: none]",
)
