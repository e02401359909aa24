"""A test of the tests: what would break a promise is found.

Each defect of `defects.toml` is planted into a private copy of the package, and the test that it
names must fail there. It must pass in a copy without a defect.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import c_source
import msgspec
import pytest
from planting import (
    NEEDED,
    PARTS,
    TESTS,
    CannotBePlanted,
    Defect,
    Found,
    changed_source,
    copy,
    defects,
    due,
    plant,
    run,
    sample,
    warm,
)
from turns import commit_number

#: One for each processor of a small machine.
AT_ONCE = 2


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "defect" in metafunc.fixturenames:
        part = metafunc.config.getoption("--planted", default="twelfth")
        chosen = (
            sample(defects()) if part == "sample" else due(defects(), PARTS[part], commit_number())
        )
        names = [defect.name.replace(" ", "-") for defect in chosen]
        metafunc.parametrize("defect", chosen, ids=names)


class Field:
    """Where defects are planted: several at once, each in a copy and a process of its own.

    Attributes:
        sound: what came of all the tests in a copy without a defect, in one process: to load
            what they need takes longer than most of them.
        planted: what came of the one test with each defect, by its name.
    """

    def __init__(self, chosen: list[Defect], sound: Path, path: Path) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._sound = sound
        tests = list(dict.fromkeys(defect.found_by for defect in chosen))
        self.sound = self._pool.submit(run, sound, tests, to_the_end=True)
        self.planted = {
            defect.name: self._pool.submit(self._try, defect, path / str(place))
            for place, defect in enumerate(chosen)
        }

    def _try(self, defect: Defect, path: Path) -> Found:
        return run(plant(defect, self._sound, path), [defect.found_by])

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy without a defect."""
    return copy(tmp_path_factory.mktemp("sound"))


@pytest.fixture(scope="module")
def field(
    request: pytest.FixtureRequest, sound: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Field]:
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.fail(f"run these without -n: each process would plant them all, {AT_ONCE} at once")
    params = [getattr(item, "callspec", None) for item in request.session.items]
    chosen = [found.params["defect"] for found in params if found and "defect" in found.params]
    made = Field(chosen, sound, tmp_path_factory.mktemp("field"))
    yield made
    made.close()


def test_each_can_be_planted_and_names_a_test() -> None:
    """In every check, whichever of them are tried."""
    assert defects()
    unplanted: list[str] = []
    for defect in defects():
        try:
            changed_source(defect)
        except CannotBePlanted as error:
            unplanted.append(str(error))
        name = defect.found_by.partition("::")[2].split("::")[-1].partition("[")[0]
        assert f"def {name}(" in (TESTS / defect.file).read_text(encoding="utf-8"), defect.name
    assert not unplanted, "\n".join(unplanted)


def test_it_is_found(
    defect: Defect, field: Field, record_property: Callable[[str, object], None]
) -> None:
    found = field.planted[defect.name].result()
    sound = field.sound.result()
    assert not sound.broken, f"without a defect: {sound.broken}"
    unsound = [failed for failed in sound.failed if defect.file in failed[0]]
    assert not unsound, f"without a defect fails {unsound}"
    assert not found.broken, f"{defect.found_by} says nothing about it: {found.broken}"
    assert found.failed, f"{defect.found_by} passes though {defect.name}"
    row = (defect.name, str(changed_source(defect)[0]), defect.kind, f"{found.seconds:.1f}")
    record_property("planted", f"| {' | '.join(row)} |")


# -- the mechanism ---------------------------------------------------------------------------------

SOUND = Defect(
    name="nothing",
    module="backoff",
    function="<module>",
    statement="FIRST_SECONDS = 0.25",
    instead="FIRST_SECONDS = 0.25",
    found_by="unit/core/pacing/test_values.py::test_pauses_double_up_to_a_limit_and_are_spread",
)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"module": "forward"}, "0 times"),
        ({"function": "pause"}, "0 times"),
        ({"statement": "FIRST_MINUTES = 0.25"}, "0 times"),
        ({"statement": "from __future__ import annotations", "module": ""}, "not once"),
        ({"statement": "FIRST_SECONDS = = 0.25"}, "neither a statement nor a header"),
        ({"statement": ""}, "a statement or an entry"),
        ({"entry": "FIRST_SECONDS"}, "a statement or an entry"),
        ({"statement": "", "entry": "FIRST_SECONDS"}, "0 times"),
        ({"part": "S"}, "holds 3 times"),
        ({"instead": "  FIRST_SECONDS ="}, "not Python"),
    ],
)
def test_a_list_that_does_not_fit_the_source_is_told_so(
    change: dict[str, str], why: str, tmp_path: Path
) -> None:
    with pytest.raises(CannotBePlanted, match=why):
        plant(msgspec.structs.replace(SOUND, **change), tmp_path, tmp_path / "copy")


SOUND_C = msgspec.structs.replace(
    SOUND,
    module="launcher.c",
    function="start_next",
    statement="if ((*at)->lane != lane) continue;",
)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"function": "start_nothing"}, "0 times"),
        ({"statement": "if ((*at)->lane == lane) continue;"}, "0 times"),
        ({"statement": "taken"}, "4 times"),
        ({"part": "e"}, "holds 3 times"),
        ({"instead": "if ((*at)->lane != unheard_of) continue;"}, "cannot be built"),
    ],
)
def test_a_list_that_does_not_fit_the_source_in_c_is_told_so(
    change: dict[str, str], why: str, sound: Path, tmp_path: Path
) -> None:
    with pytest.raises(CannotBePlanted, match=why):
        plant(msgspec.structs.replace(SOUND_C, **change), sound, tmp_path / "copy")


def test_a_statement_in_c_is_found_however_it_is_laid_out() -> None:
    source = """
static int f(int a,
             int b) {
    /* x = 1; */
    x  =
        1;
}
int g(void) {
    x = 1;
}
"""
    [(first, last)] = c_source.places(source, "f", "x = 1;")
    assert source[first:last].split() == ["x", "=", "1;"]
    assert c_source.places(source, "h", "x = 1;") == []


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({}, ""),
        ({"instead": "FIRST_SECONDS = 0.25 * unheard_of"}, "NameError"),
        ({"found_by": "unit/core/pacing/test_values.py::test_of_which_nobody_heard"}, "ExitCode"),
    ],
)
def test_what_does_not_find_a_defect_is_told_from_what_does(
    change: dict[str, str], broken: str, sound: Path, tmp_path: Path
) -> None:
    tried = msgspec.structs.replace(SOUND, **change)
    found = run(plant(tried, sound, tmp_path / "copy"), [tried.found_by])
    assert broken in found.broken
    assert bool(found.broken) == bool(broken)
    assert bool(found.passed) == (not broken)


def test_a_process_has_what_tests_need_when_it_begins() -> None:
    """Where that cannot be imported, Python says nothing and imports it anew in each process."""
    receiver, sender = warm().Pipe(duplex=False)
    program = "import sys; sender.send(sorted(sys.modules))"
    process = warm().Process(target=exec, args=(program, {"sender": sender}))
    process.start()
    assert set(NEEDED) <= set(receiver.recv())
    process.join()


@pytest.mark.parametrize("part", ["twelfth", "third"])
def test_each_defect_has_its_turn_in_a_row_of_commits(part: str) -> None:
    listed, parts = defects(), PARTS[part]
    met = [due(listed, parts, turn) for turn in range(100, 100 + parts)]
    assert {defect.name for some in met for defect in some} == {each.name for each in listed}
    assert all(len(some) < len(listed) / 2 for some in met)


def test_a_sample_stays_much_the_same_while_the_list_grows() -> None:
    listed = defects()
    assert sample(listed) == sample(list(reversed(listed)))
    assert len({defect.name for defect in sample(listed)}) == 100
    before = {defect.name for defect in sample(listed[:-100])}
    assert len(before & {defect.name for defect in sample(listed)}) > 80


def test_no_two_defects_have_one_name() -> None:
    names = [defect.name for defect in defects()]
    assert len(names) == len(set(names))
