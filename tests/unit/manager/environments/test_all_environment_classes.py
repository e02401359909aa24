"""What a manager reads of the files of classes and their recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kestrelctl.errors import UsageError
from kestrelctl.manager.environments.classes import read_all_classes


def test_a_recipe_comes_with_its_class(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("numpy\n")
    file = tmp_path / "classes.toml"
    file.write_text('[environment.a]\nkind = "venv"\nrecipe = "a.txt"\n')
    classes, recipes = read_all_classes([file])
    assert (list(classes), recipes) == (["a"], {"a": "numpy\n"})


def test_a_recipe_that_is_not_there_is_named_with_its_class(tmp_path: Path) -> None:
    file = tmp_path / "classes.toml"
    file.write_text('[environment.science]\nkind = "venv"\nrecipe = "no-such.txt"\n')
    with pytest.raises(UsageError, match=r"environment science: .*no-such\.txt cannot be read"):
        read_all_classes([file])


def test_a_recipe_without_an_end_is_refused_and_fills_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "classes.toml"
    file.write_text('[environment.a]\nkind = "venv"\nrecipe = "/dev/zero"\n')
    with pytest.raises(UsageError, match="/dev/zero is too long"):
        read_all_classes([file])
