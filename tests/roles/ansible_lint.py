"""The command ansible-lint in half its time: `python tests/roles/ansible_lint.py OPTIONS`.

By itself it starts `ansible-playbook --syntax-check` for each playbook, which takes longer to be
loaded than to check, and again for playbooks that others import. Here each playbook is checked
once, by a fork of one process that has loaded Ansible.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

FORKS = multiprocessing.get_context("forkserver")


def play(words: list[str], said: Path, complained: Path, status: Path) -> None:
    """Carries out `ansible-playbook` in this process, with these files as what it leaves."""
    from ansible.cli.playbook import main

    for output, file in ((1, said), (2, complained)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), output)
    try:
        main(words)
    except SystemExit as end:
        status.write_text(str(end.code), encoding="utf-8")
        raise


def played(words: list[str], *, env: dict[str, str], **_: object) -> SimpleNamespace:
    """What `subprocess.run` returns of `ansible-playbook`.

    Args:
        env: equal each time; the process that is forked has it from its start.
    """
    os.environ.update(env)
    with tempfile.TemporaryDirectory() as kept:
        said, complained, status = (Path(kept, name) for name in ("said", "complained", "status"))
        process = FORKS.Process(target=play, args=(words, said, complained, status))
        process.start()
        process.join()
        # Of threads that start processes, one may take the other's exit status from the fork
        # server: `exitcode` is then 255.
        return SimpleNamespace(
            returncode=int(status.read_text(encoding="utf-8")),
            stdout=said.read_text(encoding="utf-8"),
            stderr=complained.read_text(encoding="utf-8"),
        )


def is_checked_by_itself(_: object, playbook: str, **__: object) -> bool:
    """Whether what a playbook imports is there: then ansible-lint finds and checks it anyway."""
    return Path(playbook).is_file()


def main() -> None:
    """Carries out ansible-lint."""
    from ansible_compat.runtime import Runtime
    from ansiblelint import __main__, runner

    FORKS.set_forkserver_preload(["ansible.cli.playbook"])
    with (
        patch.object(runner, "subprocess", SimpleNamespace(run=played, PIPE=subprocess.PIPE)),
        patch.object(Runtime, "has_playbook", is_checked_by_itself),
    ):
        __main__._run_cli_entrypoint()


if __name__ == "__main__":
    main()
