"""The wheels of a wheelhouse reach a host in one file: those that its Python can use."""

from __future__ import annotations

import errno
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FOR_ANY = ["click-8.2-py3-none-any.whl", "six-1.16-py2.py3-none-any.whl"]
FOR_311 = ["msgspec-0.19-cp311-cp311-manylinux_2_17_x86_64.whl"]
STABLE = ["psutil-7.0-cp36-abi3-manylinux_2_17_x86_64.whl"]
FOR_313 = ["msgspec-0.19-cp313-cp313-manylinux_2_17_x86_64.whl"]


@pytest.fixture
def wheelhouse(tmp_path: Path) -> Path:
    for name in (*FOR_ANY, *FOR_311, *STABLE, *FOR_313):
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.fixture
def packed(load: Callable[[str], ModuleType]) -> Callable[[Path, str], Path | None]:
    found: Callable[[Path, str], Path | None]
    found = load("kestrel_package/action_plugins/kestrel_wheels").packed
    return found


Packed = Callable[[Path, str], Path]


@pytest.mark.parametrize(("python", "own"), [("3.11", FOR_311), ("3.13", FOR_313)])
def test_it_packs_what_the_hosts_python_can_use(
    wheelhouse: Path, packed: Packed, python: str, own: list[str]
) -> None:
    with tarfile.open(packed(wheelhouse, python)) as tar:
        assert sorted(tar.getnames()) == sorted([*FOR_ANY, *own, *STABLE])


def test_it_packs_once_until_a_wheel_changes(wheelhouse: Path, packed: Packed) -> None:
    first = packed(wheelhouse, "3.11").stat()
    assert packed(wheelhouse, "3.11").stat().st_ino == first.st_ino
    (wheelhouse / FOR_311[0]).write_text("built anew")
    with tarfile.open(packed(wheelhouse, "3.11")) as tar:
        file = tar.extractfile(FOR_311[0])
        assert file is not None
        assert file.read() == b"built anew"
    (wheelhouse / FOR_311[0]).unlink()
    with tarfile.open(packed(wheelhouse, "3.11")) as tar:
        assert FOR_311[0] not in tar.getnames()


def test_a_file_that_was_cut_short_is_packed_anew(wheelhouse: Path, packed: Packed) -> None:
    archive = packed(wheelhouse, "3.11")
    os.truncate(archive, 700)
    with tarfile.open(packed(wheelhouse, "3.11")) as tar:
        assert len(tar.getnames()) == 4


def test_there_may_be_none(tmp_path: Path, packed: Packed) -> None:
    assert packed(tmp_path, "3.11") is None


def test_a_full_disk_is_left_as_it_was(
    wheelhouse: Path, packed: Packed, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(file.name for file in wheelhouse.iterdir())

    def full(_tar: tarfile.TarFile, _name: str, _arcname: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tarfile.TarFile, "add", full)
    with pytest.raises(OSError, match="No space left"):
        packed(wheelhouse, "3.11")
    assert sorted(file.name for file in wheelhouse.iterdir()) == before
