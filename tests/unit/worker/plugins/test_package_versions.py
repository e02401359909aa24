"""The property `package`, as the programs of Debian and of RPM tell of what is installed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from kestrelctl.worker.plugins.built_in import NoValue, package

ENTRY = """\
Package: {name}
Status: {status}
Architecture: {architecture}
Multi-Arch: same
Maintainer: nobody
Version: {version}
Description: for a test

"""
INSTALLED, REMOVED = "install ok installed", "deinstall ok config-files"


def entry(name: str, version: str, architecture: str = "amd64", status: str = INSTALLED) -> str:
    return ENTRY.format(name=name, status=status, architecture=architecture, version=version)


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the real dpkg-query is told of instead of this machine."""
    if shutil.which("dpkg-query") is None:
        pytest.skip("this machine has no dpkg-query")
    directory = tmp_path / "dpkg"
    for name in ("info", "updates"):
        (directory / name).mkdir(parents=True)
    (directory / "available").touch()
    (directory / "arch").write_text("amd64\ni386\n")
    (directory / "status").write_text(
        entry("libgcc", "14.2.0-19")
        + entry("libgcc", "14.2.0-19", "i386")
        + entry("libold", "1:2.0-1")
        + entry("libold", "1:1.9-1", "i386")
        + entry("libgone", "3.0-1", status=REMOVED)
        + entry("libgcc-more", "5.0")
    )
    monkeypatch.setenv("DPKG_ADMINDIR", str(directory))


@pytest.mark.usefixtures("debian")
def test_a_package_of_two_architectures_has_one_version() -> None:
    assert package(["libgcc"]) == "14.2.0-19"
    assert package(["libgcc:i386"]) == "14.2.0-19"


@pytest.mark.usefixtures("debian")
def test_versions_that_differ_are_no_value_but_that_of_an_architecture_is() -> None:
    with pytest.raises(NoValue, match=r"1:1\.9-1, 1:2\.0-1.*NAME:ARCH"):
        package(["libold"])
    assert package(["libold:i386"]) == "1:1.9-1"


@pytest.mark.usefixtures("debian")
@pytest.mark.parametrize("name", ["libgone", "libgcc*", "nothing"])
def test_what_is_not_installed_under_that_name_has_no_version(name: str) -> None:
    with pytest.raises(NoValue, match="there is no package"):
        package([name])


def test_of_several_kernels_of_rpm_the_one_installed_last_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "1700000000 5.14.0-362.el9\n1719000000 5.14.0-427.el9\n1709000000 5.14.0-400.el9\n"
    program = tmp_path / "rpm"
    program.write_text(f"#!{sys.executable}\nprint({lines!r}, end='')\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert package(["kernel-core"]) == "5.14.0-427.el9"
