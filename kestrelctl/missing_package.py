"""Python packages that are not installed, and how to install them where Kestrel is."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from kestrelctl.errors import MissingTool


def missing_package(message: str, *packages: str, cause: str | None = None) -> MissingTool:
    """Returns the error that tells how to install packages beside `kestrelctl`.

    Args:
        message: what is not installed, and what is impossible without it.
        packages: their names in the package index.
        cause: why they are needed, if the message does not say it.
    """
    names = " ".join(map(shlex.quote, packages))
    return MissingTool(message, cause=cause, hint=f"{_installer(Path(sys.prefix))} {names}")


def no_classads() -> MissingTool:
    """Returns the error of a machine that cannot run a manager: it has no `classad2`."""
    return missing_package(
        "the ClassAd library of HTCondor, which a manager needs, is not installed",
        "htcondor",
        cause="only Linux on x86_64 and aarch64 has it; elsewhere, use the pool of another machine",
    )


def _installer(prefix: Path) -> str:
    """The command that adds packages to the environment at `prefix`, as it was made."""
    if (prefix / "pipx_metadata.json").exists():
        return "pipx inject kestrelctl"
    python = shlex.quote(str(prefix / "bin/python"))
    if (prefix / "uv-receipt.toml").exists():  # made by `uv tool`, without pip
        return f"uv pip install --python {python}"
    return f"{python} -m pip install"
