"""The version says which state of the repository runs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from kestrelctl import __version__, checkout
from kestrelctl.checkout import described_version

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two commits, of which one has changed the package."""
    monkeypatch.setattr(checkout, "__version__", "0.3.0.dev0")
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


def version_at(directory: Path, revision: str) -> str:
    return written(git(directory, "show", f"{revision}:kestrelctl/__init__.py"))


def written(text: str) -> str:
    (version,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return str(version)


def former_release(directory: Path) -> str:
    """The number of a release that this commit has from the one before; empty if it has none.

    A shallow clone does not know the commit before.
    """
    version = version_at(directory, "HEAD")
    before = git(directory, "rev-list", "--parents", "-1", "HEAD").split()[1:2]
    again = any(version_at(directory, each) == version for each in before)
    return version if again and ".dev" not in version else ""


def commit(directory: Path, file: str) -> None:
    git(directory, "init", "-q")
    git(directory, "add", file)
    git(directory, "commit", "-q", "-m", f"Change {file}")


def test_between_releases_it_names_the_commit(repository: Path) -> None:
    commit_id = git(repository, "rev-parse", "HEAD")
    assert described_version(repository) == f"0.3.0.dev0+g{commit_id[:9]}"


def test_a_shallow_clone_without_tags_says_the_same(repository: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(repository, "clone", "-q", "--depth=1", "--no-tags", f"file://{repository}", str(clone))
    assert git(clone, "rev-list", "--count", "HEAD") == "1"
    assert described_version(clone) == described_version(repository)


def test_builds_between_two_releases_come_between_them(repository: Path) -> None:
    ordered = ["0.2.0", described_version(repository), "0.3.0"]
    assert sorted(reversed(ordered), key=Version) == ordered
    assert Version(ordered[1]).is_prerelease


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


def test_a_release_with_changes_of_its_own_is_none(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "__version__", "0.2.0")
    (repository / "kestrelctl/a.py").write_text("2\n")
    described = described_version(repository)
    assert described == f"0.2.0+g{git(repository, 'rev-parse', 'HEAD')[:9]}.dirty"
    assert Version("0.2.0") < Version(described) < Version("0.3.0.dev0")


def test_what_was_built_of_a_commit_names_no_other(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unpacked source archive, of which somebody has made a repository."""
    monkeypatch.setattr(checkout, "__version__", "0.3.0.dev0+g1a2b3c4d5")
    assert described_version(repository) == "0.3.0.dev0+g1a2b3c4d5"


def test_what_is_no_checkout_says_what_it_was_built_as(tmp_path: Path) -> None:
    assert described_version(tmp_path) == __version__


def test_without_git_it_says_what_is_known(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(repository))
    assert described_version(repository) == "0.3.0.dev0"


def test_all_parts_of_kestrel_take_the_version_from_one_place() -> None:
    """So that a pool, its metrics and `kestrelctl --version` say the same."""
    package = Path(checkout.__file__).parent
    readers = [path for path in package.rglob("*.py") if "__version__" in path.read_text()]
    assert sorted(str(path.relative_to(package)) for path in readers) == [
        "__init__.py",
        "checkout.py",
    ]


def test_the_version_of_the_checkout_is_of_a_release_or_on_the_way_to_one() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev0)?", __version__)


def test_only_one_commit_has_the_number_of_a_release() -> None:
    """The first commit after a release sets the .dev0 of the next one."""
    if (CHECKOUT / ".git").exists():
        assert former_release(CHECKOUT) == ""


@pytest.mark.parametrize(
    ("versions", "former"),
    [
        (["0.2.0"], ""),
        (["0.2.0.dev0", "0.2.0"], ""),
        (["0.2.0", "0.3.0.dev0", "0.3.0.dev0"], ""),
        (["0.2.0.dev0", "0.2.0", "0.2.0"], "0.2.0"),
    ],
)
def test_a_commit_that_keeps_the_number_of_a_release_is_found(
    tmp_path: Path, versions: list[str], former: str
) -> None:
    (tmp_path / "kestrelctl").mkdir()
    for number, version in enumerate(versions):
        (tmp_path / "kestrelctl/__init__.py").write_text(f'__version__ = "{version}"\n# {number}\n')
        commit(tmp_path, "kestrelctl/__init__.py")
    assert former_release(tmp_path) == former
