"""Build the wheel of a checkout on the controller, and tell which release it makes.

The release is named after what is in it: the version, a digest of the program, one of the pinned
requirements, and the host's Python. Building the same checkout twice makes the same release, with
any version of the build tools, and so does another commit that changes nothing of the program: only
the commit in the version differs then, and a host that has the one needs no other.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

#: Of each digest in the name of a release; the role reads them there (`__kestrel_package_digest`).
_DIGITS = 8
_NO_BUILDER = """\
There is nothing here that could build the wheel of {source}. One of these helps:
  {source}/kestrel --version      (makes its .venv, with the build tool in it)
  install uv, or hatchling into the Python that runs Ansible
or name a wheel that was built elsewhere in kestrel_package_wheel."""


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: `source` (checkout), `wheel` (a file, or empty to build one), `requirements`
    (name of a lock in the checkout), `python` (version on the host, such as 3.11).

    Returns: `wheel`, `requirements` (paths on the controller), `version`, `release`.
    """

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> Any:
        result = super().run(tmp, task_vars)
        arguments = self._task.args
        source = Path(arguments["source"]).resolve()
        requirements = source / arguments["requirements"]
        if not requirements.is_file():
            raise AnsibleActionFail(f"{requirements} does not exist")
        given = arguments.get("wheel")
        wheel = Path(given).expanduser().resolve() if given else _built(source)
        version, program = _program(wheel)
        pinned = hashlib.sha256(requirements.read_bytes()).hexdigest()
        result.update(
            changed=False,
            wheel=str(wheel),
            requirements=str(requirements),
            version=version,
            release=f"{version}-{program[:_DIGITS]}{pinned[:_DIGITS]}-py{arguments['python']}",
        )
        return result


def _built(source: Path) -> Path:
    """The wheel, in `dist` of the checkout. Hosts are served in parallel: one at a time builds."""
    dist = source / "dist"
    dist.mkdir(exist_ok=True)
    with (dist / ".lock").open("w") as lock, tempfile.TemporaryDirectory(dir=dist) as made:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "315532800"}  # 1980, the first of zip
        done = subprocess.run(
            [*_builder(source), made],
            cwd=source, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        wheels = list(Path(made).glob("*.whl"))
        if done.returncode or not wheels:
            raise AnsibleActionFail(f"the wheel of {source} cannot be built:\n{done.stderr}")
        return wheels[0].replace(dist / wheels[0].name)


def _builder(source: Path) -> list[str]:
    for python in (source / ".venv/bin/python", Path(sys.executable)):
        command = [str(python), "-m", "hatchling"]
        try:
            found = subprocess.run([*command, "--help"], capture_output=True, check=False)
        except OSError:
            continue
        if found.returncode == 0:
            return [*command, "build", "-t", "wheel", "-d"]
    if shutil.which("uv"):
        return ["uv", "build", "--quiet", "--wheel", "--out-dir"]
    raise AnsibleActionFail(_NO_BUILDER.format(source=source))


def _program(wheel: Path) -> tuple[str, str]:
    """The version, and a digest of what runs: neither of the commit nor of what only describes it.

    What it depends on stands in the pinned requirements.
    """
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            record = next(n for n in archive.namelist() if n.endswith(".dist-info/RECORD"))
            about = record.partition("/")[0]
            version = about.removesuffix(".dist-info").partition("-")[2]
            number = version.partition("+")[0]
            for name in sorted(archive.namelist()):
                if name.startswith(about) and not name.endswith("/entry_points.txt"):
                    continue
                text = archive.read(name).replace(version.encode(), number.encode())
                # The directories beside the package are called after the version, too.
                place = name.removeprefix(about).replace(version, number)
                digest.update(f"{place} {len(text)}\n".encode() + text)
    except (OSError, zipfile.BadZipFile, StopIteration) as error:
        raise AnsibleActionFail(f"{wheel} is no wheel: {error}") from error
    return version, digest.hexdigest()
