"""The option that says who may read metrics, for each program that serves them."""

from __future__ import annotations

import click

from kestrelctl.grammar.quantities import split_words


def _readers(
    _ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns the addresses, one by one. Raises UsageError if one is no address."""
    from kestrelctl.metrics.readers import Readers

    addresses = split_words(given)
    Readers(addresses)
    return addresses


metrics_allow = click.option(
    "--metrics-allow",
    multiple=True,
    metavar="ADDRESS",
    callback=_readers,
    help="Address that may read the metrics from another machine: 192.0.2.0/24; comma or "
    "repeated.  [default: none]",
)
