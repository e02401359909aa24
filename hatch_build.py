"""Writes the version into what is built: it has no git any more where it is installed.

Builds the programs in C for each kind of processor, too, if the compiler is here that can, and adds
manual pages to a wheel, if there is what commands need.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "kestrelctl/__init__.py"


class VersionHook(BuildHookInterface):
    """Replaces `__version__`, except where the checkout itself is used (an editable wheel)."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        text = (Path(self.root) / PLACE).read_text(encoding="utf-8")
        text = re.sub(r'__version__ = ".*"', f'__version__ = "{self.metadata.version}"', text)
        # Of a file inside the checkout hatchling would not see that it replaces another one.
        self.made = Path(tempfile.mkdtemp())
        (self.made / "__init__.py").write_text(text, encoding="utf-8")
        build_data["force_include"][str(self.made / "__init__.py")] = PLACE
        sys.path.insert(0, self.root)
        self._add_programs(build_data)
        if self.target_name == "wheel":
            self._add_manual(build_data)

    def _add_programs(self, build_data: dict[str, Any]) -> None:
        from kestrelctl.worker.launch import native_program

        if not native_program.builds_for_all():
            self.app.display_warning("without ziglang workers start tasks in Python")
            return
        for machine in native_program.MACHINES:
            for program in native_program.PROGRAMS:
                made = native_program.build(program, machine, self.made)
                place = f"kestrelctl/worker/launch/compiled/{made.name}"
                build_data["force_include"][str(made)] = place

    def _add_manual(self, build_data: dict[str, Any]) -> None:
        try:
            from kestrelctl.cli.man_pages import man_pages
        except ModuleNotFoundError as error:
            self.app.display_warning(f"without {error.name} there are no manual pages")
            return
        for name, page in man_pages(self.metadata.version).items():
            (self.made / name).write_text(page, encoding="utf-8")
            build_data["shared_data"][str(self.made / name)] = f"share/man/man1/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            shutil.rmtree(self.made)
