"""What a wheel holds beside the code."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def test_a_wheel_says_its_license(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        info = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        assert "License-Expression: Apache-2.0\n" in archive.read(info).decode()
        license_file = info.replace("METADATA", "licenses/LICENSE")
        assert archive.read(license_file) == (CHECKOUT / "LICENSE").read_bytes()
