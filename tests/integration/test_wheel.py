"""What a wheel holds beside the code."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kestrelctl.checkout import described_version

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


def test_a_wheel_has_manual_pages_where_man_finds_them(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (page,) = (n for n in archive.namelist() if n.endswith("/kestrelctl-submit.1"))
        assert page.endswith(".data/data/share/man/man1/kestrelctl-submit.1")
        assert "\\fB\\-\\-array\\fR" in archive.read(page).decode()


def test_a_wheel_has_its_programs_for_each_kind_of_machine_and_they_run_where_it_is_installed(
    tmp_path: Path,
) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    place = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(place), wheel]
    subprocess.run(install, check=True, capture_output=True)
    made = {file.name: file for file in (place / "kestrelctl/worker/launch/compiled").iterdir()}
    kinds = {name: file.read_bytes()[18:20] for name, file in made.items()}  # e_machine (elf(5))
    assert kinds == {
        f"kestrel-{program}-{machine}": code
        for program in ("launcher", "init")
        for machine, code in (("x86_64", b"\x3e\x00"), ("aarch64", b"\xb7\x00"))
    }
    find = (
        "from kestrelctl.worker.launch.native_program import PROGRAMS, find;"
        "print(*map(find, PROGRAMS), sep='\\n')"
    )
    environment = {"PYTHONPATH": str(place)}
    found = subprocess.run(
        [sys.executable, "-c", find], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    names = [f"kestrel-{program}-{os.uname().machine}" for program in ("launcher", "init")]
    assert found.stdout.split() == [str(made[name]) for name in names]


@pytest.fixture
def dist() -> Iterator[Path]:
    """A directory inside the checkout, where the roles build."""
    (CHECKOUT / "dist").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CHECKOUT / "dist") as made:
        yield Path(made)


def test_what_is_built_says_which_state_of_the_repository_it_is(dist: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(dist)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("kestrelctl/__init__.py").decode().endswith(stamp())
    (sources,) = dist.glob("*.tar.gz")
    with tarfile.open(sources) as packed:
        packed.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("kestrelctl-*/")
    again = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "2")]
    subprocess.run(again, cwd=unpacked, check=True, capture_output=True)
    assert [file.name for file in (tmp_path / "2").glob("*.whl")] == [wheel.name]


def stamp() -> str:
    return f'__version__ = "{described_version(CHECKOUT)}"\n'
