"""Experiments that re-run what the sources of Kestrel measured, beside their figures.

Each has a package: `flock` (four real pools), `flock_simulation` (a thousand simulated ones),
`imbalance` (hosts for three classes of work) and `polls` (workers that are polled). Its `command`
is a subcommand of `kestrelctl bench` where this distribution is installed.
"""
