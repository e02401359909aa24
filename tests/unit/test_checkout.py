"""The version says which state of the repository runs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from kestrelctl import __version__, checkout
from kestrelctl.checkout import described_version


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two commits, of which one has changed the package."""
    monkeypatch.setattr(checkout, "__version__", "0.2.0.dev0")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "kestrelctl").mkdir()
    for file in ("kestrelctl/a.py", "README.md"):
        (tmp_path / file).write_text("1\n")
        commit(tmp_path, file)
    return tmp_path


def git(directory: Path, *words: str) -> str:
    someone = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    command = ["git", "-C", str(directory), *someone, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit(directory: Path, file: str) -> None:
    git(directory, "init", "-q")
    git(directory, "add", file)
    git(directory, "commit", "-q", "-m", f"Change {file}")


def test_it_counts_and_names_the_commits_that_changed_the_package(repository: Path) -> None:
    last = git(repository, "rev-parse", "HEAD~1")
    assert described_version(repository) == f"0.2.0.dev1+g{last[:9]}"


def test_it_says_that_something_is_not_committed(repository: Path) -> None:
    (repository / "README.md").write_text("2\n")
    assert not described_version(repository).endswith(".dirty")
    (repository / "kestrelctl/a.py").write_text("2\n")
    assert described_version(repository).endswith(".dirty")


def test_it_is_in_the_way_of_no_other_git(repository: Path) -> None:
    """A lock for a moment would make a commit fail that somebody makes at the same time."""
    os.utime(repository / "kestrelctl/a.py", (1, 1))  # what git would note in its index
    index = (repository / ".git/index").read_bytes()
    assert not described_version(repository).endswith(".dirty")
    assert (repository / ".git/index").read_bytes() == index


def test_a_release_is_its_number(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "__version__", "0.2.0")
    assert described_version(repository) == "0.2.0"


def test_what_is_no_checkout_says_what_it_was_built_as(tmp_path: Path) -> None:
    assert described_version(tmp_path) == __version__


def test_without_git_it_says_what_is_known(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(repository))
    assert described_version(repository) == "0.2.0.dev0"


def test_the_version_of_the_checkout_is_of_a_release_or_on_the_way_to_one() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev0)?", __version__)
