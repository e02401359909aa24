"""Pack the wheels that a host's Python can use into one file: sent one by one they take minutes."""

from __future__ import annotations

import os
import re
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: `wheelhouse` (a directory on the controller), `python` (version on the host, such
    as 3.11).

    Returns: `archive`, a tar file beside the wheels.
    """

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> Any:
        result = super().run(tmp, task_vars)
        wheelhouse = Path(self._task.args["wheelhouse"]).expanduser().resolve()
        python = self._task.args["python"]
        try:
            archive = packed(wheelhouse, python)
        except OSError as error:
            raise AnsibleActionFail(
                f"the wheels of {wheelhouse} cannot be packed into one file there: {error}"
            ) from error
        if archive is None:
            raise AnsibleActionFail(
                f"{wheelhouse} has no wheel for Python {python}; fill it: "
                f"ansible-playbook playbooks/wheelhouse.yml -e wheelhouse={wheelhouse}"
            )
        result.update(changed=False, archive=str(archive))
        return result


def packed(wheelhouse: Path, python: str) -> Path | None:
    """A tar file of all wheels for a version of Python; None if there is none.

    It is made once for each state of the directory. Hosts are served in parallel: each process
    makes a file of its own and puts it in its place.
    """
    digits = python.replace(".", "")
    fitting = re.compile(rf"-(py3|py2\.py3|cp{digits}|cp[0-9]+-abi3)-")
    wheels = sorted(file for file in wheelhouse.glob("*.whl") if fitting.search(file.name))
    if not wheels:
        return None
    archive = wheelhouse / f"wheels-py{python}.tar"
    if archive.exists() and _state_in(archive) == _state_of(wheels):
        return archive
    with tempfile.NamedTemporaryFile(dir=wheelhouse, delete=False) as made:
        try:
            os.fchmod(made.fileno(), 0o644)
            with tarfile.open(fileobj=made, mode="w") as tar:
                for file in wheels:
                    tar.add(file, file.name)
            made.flush()
            os.replace(made.name, archive)
        except BaseException:  # half a file would keep a full disk full
            os.unlink(made.name)
            raise
    return archive


def _state_of(wheels: list[Path]) -> list[tuple[str, int, int]]:
    found = [(file.name, file.stat()) for file in wheels]
    return [(name, status.st_size, int(status.st_mtime)) for name, status in found]


def _state_in(archive: Path) -> list[tuple[str, int, int]]:
    try:
        with tarfile.open(archive) as tar:
            return [(each.name, each.size, int(each.mtime)) for each in tar.getmembers()]
    except tarfile.TarError:
        return []
