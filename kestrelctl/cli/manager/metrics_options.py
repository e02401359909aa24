"""The option that says who may read metrics; of whatever serves some."""

from __future__ import annotations

import click

from kestrelctl.grammar.quantities import split_words


def _readers(
    _ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    """The addresses, one by one. UsageError if one is none."""
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
