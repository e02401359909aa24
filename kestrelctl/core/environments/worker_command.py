"""The ordinary worker that an environment boots."""

from __future__ import annotations

from collections.abc import Sequence

from kestrelctl.core.environments.environment_class import EnvironmentClass

#: The path at which an environment with files of its own sees its own directory of the host.
INSIDE = "/run/kestrel"

#: The one-time token, in an environment's own directory, for its owner alone.
TOKEN_FILE = "token"


def worker_command(
    wanted: EnvironmentClass,
    name: str,
    *,
    program: Sequence[str] = ("kestrelctl",),
    isolation: str = "auto",
    any_workdir: bool = False,
) -> tuple[str, ...]:
    """Joins the pool with the token on its standard input, and is a worker from then on.

    A token says where the server is and whom to trust, so nothing else about the pool is needed.

    Args:
        name: the one under which the worker joins; a token that fixes another is refused.
        program: how `kestrelctl` is called there.
        isolation, any_workdir: as the worker that has made the environment has them.
    """
    words = [*program, "worker", "join", "-", "--name", name, "--isolation", isolation]
    if any_workdir:
        words.append("--any-workdir")
    if wanted.tags:
        words += ["--tags", ",".join(wanted.tags)]
    if wanted.resources.cpus:
        words += ["--cpus", f"{wanted.resources.cpus:g}"]
    if wanted.resources.memory_bytes:
        words += ["--memory", str(wanted.resources.memory_bytes)]
    if wanted.resources.disk_bytes:
        words += ["--asset", f"disk={wanted.resources.disk_bytes}"]
    return tuple(words)


def reading(token_file: str, command: Sequence[str]) -> tuple[str, ...]:
    """The command with a file as its standard input: a token on a command line would be seen."""
    return ("sh", "-c", 'exec "$@" <"$0"', token_file, *command)
