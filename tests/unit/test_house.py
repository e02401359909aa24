"""Rules of the house that no linter knows: how modules are cut and named, what the locks pin."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
MODULES = sorted(
    module for room in ("experiments", "kestrelctl") for module in (CHECKOUT / room).rglob("*.py")
)


def name(module: Path) -> str:
    return str(module.relative_to(CHECKOUT))


@cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"), name(module))


def pins(lock: str) -> set[str]:
    """Every `name==version` of a lock file, wherever it is for: what one lock has for some versions
    of Python only, another may have for all."""
    lines = (CHECKOUT / lock).read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if "==" in line and not line.startswith("#")]
    return {line.partition(";")[0].rstrip(" \\") for line in found}


def test_modules_are_named_after_what_they_hold() -> None:
    vague = {"util", "utils", "helper", "helpers", "common", "misc"}
    parts = {name(module): set(Path(name(module)).with_suffix("").parts) for module in MODULES}
    assert [named for named, found in parts.items() if found & vague] == []


def shared(named: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that several modules have, or have something of, with these modules."""
    modules: dict[str, list[str]] = {}
    for each, module in named:
        modules.setdefault(each, []).append(name(module))
    return {each: found for each, found in modules.items() if len(found) > 1}


CARRIED = "the message of protocol.workers that carries the effect or event of the core"
#: Names of classes that several modules share, and why they may.
SHARED_CLASS_NAMES = {
    "Kill": CARRIED,
    "Leaving": CARRIED,
    "Recall": CARRIED,
    "TakeCheckpoints": CARRIED,
    "Resized": CARRIED,
    "Returned": CARRIED,
    "Staged": CARRIED,
    "Run": CARRIED,
    "SetHeartbeat": CARRIED,
    "Welcome": CARRIED,
}


def test_no_two_public_classes_have_one_name() -> None:
    found = shared(
        (node.name, module)
        for module in MODULES
        for node in parsed(module).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {each: twins for each, twins in found.items() if each not in SHARED_CLASS_NAMES} == {}
    assert found.keys() == SHARED_CLASS_NAMES.keys(), "an exception that nobody needs any more"


def test_only_the_core_and_simulations_look_into_a_pools_state() -> None:
    """Shells ask the pool: what its answers rest on may change without them."""

    def looks_in(node: ast.AST) -> bool:
        if not isinstance(node, ast.Attribute) or node.attr != "state":
            return False
        owner = node.value
        called = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
        return called.lstrip("_") == "pool"

    shells = [m for m in MODULES if not {"core", "experiments"} & set(Path(name(m)).parts)]
    found = [
        f"{name(module)}:{node.lineno}"
        for module in shells
        for node in ast.walk(parsed(module))
        if looks_in(node)
    ]
    assert found == []


def test_a_wait_with_a_limit_can_be_cancelled() -> None:
    """In Python 3.11 `asyncio.wait_for` loses a cancel that comes with what it waits for; it is
    `asyncio.timeout` that does not. https://github.com/python/cpython/issues/86296
    """
    found = [
        f"{name(module)}:{node.lineno}"
        for module in MODULES
        for node in ast.walk(parsed(module))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "asyncio.wait_for"
    ]
    assert found == []


DECODE_ERRORS = {"msgspec.DecodeError", "msgspec.MsgspecError"}


def expected_errors(node: ast.AST) -> set[str]:
    """The errors that a handler, or a `contextlib.suppress`, expects."""
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        types = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        types = node.args
    else:
        return set()
    return {ast.unparse(each) for each in types}


def test_who_decodes_expects_bytes_that_are_no_text() -> None:
    """For these msgspec 0.22.0 raises a UnicodeDecodeError, which is no DecodeError."""
    found = [
        f"{name(module)}:{node.lineno}"
        for module in MODULES
        for node in ast.walk(parsed(module))
        if (errors := expected_errors(node)) & DECODE_ERRORS
        and not errors & {"ValueError", "UnicodeError", "UnicodeDecodeError", "UnicodeEncodeError"}
    ]
    assert found == []


def test_modules_start_with_a_docstring() -> None:
    assert [name(module) for module in MODULES if not ast.get_docstring(parsed(module))] == []


#: Words with which no docstring begins: the reader would have to guess who does what.
NO_BEGINNING = re.compile(
    r"(What|Which|Whom|Whose|Who|Where|When|How|Why|That|Those|These|With|Without|From|In|On|At|By"
    r"|For|To|So|As|Under|Of)\b"
)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = [
        f"{name(module)}: {text.splitlines()[0]}"
        for module in MODULES
        for node in ast.walk(parsed(module))
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node))
        if NO_BEGINNING.match(text)
    ]
    assert found == []


DEPLOYED = [
    "requirements-run.lock",
    "requirements-build.lock",
    "requirements-manager.lock",
    "requirements-worker.lock",
    "requirements-worker-s3.lock",
]


@pytest.mark.parametrize("lock", DEPLOYED)
def test_what_runs_is_what_was_tested(lock: str) -> None:
    assert pins(lock)
    assert pins(lock) < pins("requirements.lock")


def test_a_manager_can_be_a_worker_too() -> None:
    assert pins("requirements-worker.lock") < pins("requirements-manager.lock")


def test_a_manager_of_the_roles_can_have_its_store_in_postgresql() -> None:
    names = {pin.partition("==")[0] for pin in pins("requirements-manager.lock")}
    assert {"psycopg", "psycopg-binary"} <= names


@pytest.mark.parametrize("lock", ["requirements.lock", *DEPLOYED])
def test_lock_names_no_place_to_download_from(lock: str) -> None:
    text = (CHECKOUT / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert "\n--" not in text  # as --index-url and --find-links would be


# -- tests that cannot fail ------------------------------------------------------------------------

TESTS = sorted((CHECKOUT / "tests").rglob("test_*.py"))
#: Methods and functions that make something of something.
OF_THEIR_OWNER = ("items", "keys", "split", "splitlines", "values")
KEEP_ALL = ("enumerate", "list", "permutations", "product", "reversed", "sorted", "tuple")
Known = Mapping[str, ast.expr]


def called(node: ast.Call) -> str:
    function = node.func
    return getattr(function, "id", None) or getattr(function, "attr", "")


def is_never_empty(node: ast.expr, known: Known) -> bool:
    """Whether what is looped over is written down, so that it is plain that there is something.

    A name with a capital is a table or an enumeration of the product.
    """
    match node:
        case ast.Constant(value=value):
            return bool(value)
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return bool(elements)
        case ast.Dict(keys=keys):
            return bool(keys)
        case ast.Name(id=name) if name in known:
            others = {each: value for each, value in known.items() if each != name}
            return is_never_empty(known[name], others)
        case ast.Name(id=name):
            return name[0].isupper()
        case ast.BinOp(left=left, right=right):
            return is_never_empty(left, known) or is_never_empty(right, known)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            return all(not g.ifs and is_never_empty(g.iter, known) for g in node.generators)
        case ast.Call(func=ast.Attribute(value=owner)) if called(node) in OF_THEIR_OWNER:
            return is_never_empty(owner, known)
        case ast.Call(args=arguments) if called(node) == "zip":
            strict = any(word.arg == "strict" and ast.unparse(word.value) == "True"
                         for word in node.keywords)  # fmt: skip
            found = [is_never_empty(each, known) for each in arguments]
            return any(found) if strict else all(found)
        case ast.Call(args=arguments) if called(node) == "range":
            bounds = [each.value for each in arguments if isinstance(each, ast.Constant)]
            if len(bounds) == len(arguments):
                return bool(range(*bounds))
            return all(is_never_empty(each, known) for each in arguments)
        case ast.Call(args=arguments) if called(node) in KEEP_ALL:
            return bool(arguments) and all(is_never_empty(each, known) for each in arguments)
    return False


def assigned(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    """The names that are given a value in one way alone, with it."""
    found: dict[str, ast.expr] = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = value
    return found


def checks(node: ast.AST, known: Known, certain: bool = True) -> Iterator[bool]:
    """Of each check in a test, whether it is made whenever the test runs through."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Assert(
                test=ast.Call(args=[ast.GeneratorExp() | ast.ListComp() as each]) as test
            ):
                yield certain and (called(test) != "all" or is_never_empty(each, known))
            case ast.Assert() | ast.Raise():
                yield certain
            case ast.With(items=items) | ast.AsyncWith(items=items):
                if any("raises" in ast.unparse(item) for item in items):
                    yield certain
        loops = isinstance(child, (ast.For, ast.AsyncFor))
        runs = not loops or is_never_empty(child.iter, known)
        yield from checks(child, known, certain and runs)


def cases_in(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The tests of a module, but those of Hypothesis: of many examples some may be empty."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            drawn = any("given(" in ast.unparse(each) for each in node.decorator_list)
            if node.name.startswith("test_") and not drawn:
                yield node


def may_check_nothing(tree: ast.Module) -> list[str]:
    """Tests that have all their checks in loops over what might be empty."""
    found = []
    for test in cases_in(tree):
        parameters = {each.arg for each in test.args.args}
        known = assigned(tree.body) | assigned(ast.walk(test))
        made = list(checks(test, {n: value for n, value in known.items() if n not in parameters}))
        if made and not any(made):
            found.append(test.name)
    return found


def test_no_test_passes_because_it_looks_at_nothing() -> None:
    """`assert found` before the loop says that there is something to look at."""
    found = {name(module): may_check_nothing(parsed(module)) for module in TESTS}
    assert {module: tests for module, tests in found.items() if tests} == {}


@pytest.mark.parametrize(
    "body",
    [
        "for each in found(): assert each",
        "for each in [n for n in (1, 2) if n]: assert each",
        "for each in range(0): assert each",
        "assert all(each for each in found())",
        "xs = found()\n for each in xs: assert each",
        "for a, b in zip(found(), (1, 2)): assert a",
        "for each in (1, 2):\n  for other in found(each): assert other",
        "for each in found():\n  with pytest.raises(E): each()",
    ],
)
def test_a_test_that_may_look_at_nothing_is_found(body: str) -> None:
    assert may_check_nothing(ast.parse(f"def test_x():\n {body}")) == ["test_x"]


@pytest.mark.parametrize(
    "body",
    [
        "assert found()",
        "xs = found()\n assert xs\n for each in xs: assert each",
        "for each in (1, 2): assert each",
        "for each in range(0, 10, 5): assert each",
        "for a, b in zip(found(), (1, 2), strict=True): assert a",
        "xs = {1: 2}\n for each in xs.values(): assert each",
        "for each in TABLE: assert each",
        "for each in [n + 1 for n in (1, 2)]: assert each",
        "for each in found():\n  return\n raise AssertionError",
        "helper()",
    ],
)
def test_a_test_that_is_certain_to_look_is_not_found(body: str) -> None:
    assert may_check_nothing(ast.parse(f"def test_x():\n {body}")) == []
