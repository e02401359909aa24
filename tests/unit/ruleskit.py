"""Rubbish for rules: expressions and commands of triggers as one would write them who wants out, or
wants much, and what plugins print that are no better. By a seed, so that each can be made again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import msgspec

from kestrelctl.core.properties.reading import (
    LARGEST_FLOAT,
    LARGEST_INT,
    MOST_REASON_CHARACTERS,
    MOST_TEXT_BYTES,
    RETURN_TYPES,
    PropertyReading,
    read_printed,
)
from kestrelctl.core.properties.readings import Readings
from kestrelctl.core.triggers.actions import ACTIONS, MOST_TEXT_CHARACTERS, TriggerActions
from kestrelctl.core.triggers.expression import (
    FUNCTIONS,
    WORKERS_IN_A_STEP,
    ExpressionError,
    TableView,
    TriggerExpression,
)
from kestrelctl.core.triggers.pool_views import (
    NAMES,
    PoolSnapshot,
    WatchedEnvironments,
    WatchedGroup,
    WatchedJob,
    WatchedQueue,
    WatchedUnmet,
    WatchedWorker,
)

#: What Python does on the way out: opens, imports, runs, connects, sets traces, finds objects.
_ESCAPES = ("open", "import", "exec", "os.", "subprocess.", "socket.", "ctypes.", "object.__",
            "sys._", "gc.", "marshal.", "pickle.", "code.")  # fmt: skip
#: Python's own parser asks for these: names that are not ASCII, and what it would warn of.
_OF_THE_PARSER = ("unicodedata", "warnings")

_DUNDERS = ["__class__", "__bases__", "__mro__", "__subclasses__", "__globals__", "__dict__",
            "__struct_fields__", "__init__", "__reduce__", "__getattribute__", "_made", "_make",
            "__\uff43\uff4c\uff41ss__", "_\uff3fclass__", "__clas\u017f__"]  # fmt: skip
_FIELDS = ["name", "host", "state", "tags", "groups", "cpus", "memory", "running", "queued",
           "properties", "workers", "load", "gpu", "mean", "count", "missing", "jobs", "waiting",
           "shapes", "tasks", "clients", "keys", "items", "get", "append", "format"]  # fmt: skip
_FUNCTIONS = [*FUNCTIONS, "eval", "exec", "open", "getattr", "print", "type", "vars", "range",
              "list", "str", "sorted", "map", "__import__", "\uff4cen",
              "breakpoint"]  # fmt: skip
_SIGNS = ["+", "-", "*", "/", "//", "%", "**", "<<", ">>", "@", "|", "&", "^", "and", "or", "<",
          "<=", "==", "!=", ">", "in", "not in", "is", "is not", ",", ":=", "if", ";"]  # fmt: skip
_CONSTANTS = ["0", "1", "-1", "2.5", "1e308", "1e999", "-1e999", "18446744073709551616", "None",
              "True", "1j", "b'x'", "...", "''", "'gpu'", "'%s' % workers", "'{0.__class__}'",
              "'\\x00'", "'\\ud800'", "f'{workers}'", "'a' 'b'", "0x_f", "1_0"]  # fmt: skip


def world(workers: int = 3, properties: int = 4, groups: int = 2) -> dict[str, object]:
    """What a pool of that size shows to expressions, its sums made as the manager makes them."""
    book = Readings()
    members = []
    for number in range(workers):
        name = f"w{number}@workers.pool/a"
        readings = [
            (f"p{n}", PropertyReading(5.0, number * n if n % 2 else f"text {n}"))
            for n in range(properties)
        ]
        book.take(name, [*readings, ("load", PropertyReading(5.0, 0.5 * number))], anew=True)
        members.append(
            WatchedWorker(
                name=name, host=f"h{number}", state="idle", tags=("linux", "gpu"),
                groups=tuple(f"g{n}" for n in range(groups)), cpus=4.0, memory=8e9, running=0,
                queued=0, properties=book.values_of(name),
            )
        )  # fmt: skip
    jids = [each.name for each in members]

    def sums() -> TableView[Any]:
        names = book.names(jids)
        return TableView(
            names, lambda name: book.summary(name, jids), len(jids) // WORKERS_IN_A_STEP
        )

    def group(_: str) -> WatchedGroup:
        return WatchedGroup(workers=members, properties=sums())

    jobs = [
        WatchedJob(id=n, name="fit", owner="ada", priority=n, held=False, waiting=100, running=3)
        for n in range(workers)
    ]
    return PoolSnapshot(
        at=5.0,
        workers=members,
        groups=TableView([f"g{n}" for n in range(groups)], group, len(jids) // WORKERS_IN_A_STEP),
        properties=sums(),
        queue=WatchedQueue(jobs=jobs, waiting=100, running=3),
        unmet=WatchedUnmet(tasks=7, shapes={"1 cpu": 7}),
        environments={"venv": WatchedEnvironments(starting=0, ready=1, stopping=0, waiting=2)},
    ).views()


class Rubbish:
    """Makes it.

    Args:
        seed: of the same, the same comes.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def expression(self) -> str:
        """An expression, mostly one that can be read."""
        makers: list[Callable[[], str]] = [self._tree, self._deep, self._wide, self._costly]
        text = self._random.choices(makers, (10, 1, 1, 2))[0]()
        if self._random.random() < 0.6:  # so that these names are something
            text = f"[{text} for w in workers for x in {self._random.choice(_MANY)}]"
        if self._random.random() < 0.1:
            text = self._spoilt(text)
        return f"{{ {text} }}" if self._random.random() < 0.1 else text

    def command(self) -> str:
        """What a trigger might have done."""
        pick = self._random.choice
        calls = []
        for _ in range(pick([1, 1, 1, 2, 25])):
            name = pick([*ACTIONS, "sender.send_get_property", pick(_FUNCTIONS)])
            if self._random.random() < 0.05:
                name = ".".join([name] * pick([2, 240]))
            given = [self._tree() for _ in range(pick([0, 1, 1, 2, 3]))]
            if self._random.random() < 0.3:
                given.append(f"{pick(['workers', 'group', 'host', 'days', '**'])}={self._tree()}")
            calls.append(f"{name}({', '.join(given)})")
        text = "; ".join(calls)
        return self._spoilt(text) if self._random.random() < 0.1 else text

    def printed(self) -> tuple[bytes, str]:
        """What a plugin prints, and of which type it ought to be."""
        pick, random = self._random.choice, self._random
        digits = "".join(
            pick("0123456789\u0663\uff19") for _ in range(pick([1, 5, 19, 20, 400, 5_000]))
        )
        text = pick(
            [
                digits, f"-{digits}", f"{digits}.{digits}", f"1e{digits}", "nan", "inf", "0x1f",
                "1_000", "YES", "true\n\n", "\x1b[31mred", "a\x00b", "\u202e12", "{}", "%s%n",
                " " * pick([1, 5_000]), "x" * pick([1_024, 1_025, 9_999]), "ß" * 512, "ß" * 513,
                "\u2028", "{'a': 1}", '{"type":"run"}', "\ud800",
            ]
        )  # fmt: skip
        printed = text.encode(errors="surrogatepass")
        if random.random() < 0.3:
            place = random.randrange(len(printed) + 1)
            printed = printed[:place] + random.randbytes(pick([1, 4, 40])) + printed[place:]
        return printed, pick(RETURN_TYPES)

    # -- parts -------------------------------------------------------------------------------------

    def _atom(self) -> str:
        pick = self._random.choice
        path = ".".join([pick([*NAMES, "w", "x"]), pick(_FIELDS)])
        huge = "9" * pick([20, 300, 3_900])
        usual = [pick(NAMES), pick(_CONSTANTS), path, pick(_GOOD), pick(_GOOD), pick(_GOOD)]
        return pick([*usual, *usual, pick(["w", "x"]), pick(_DUNDERS), huge, "x" * 3_000])

    def _tree(self, depth: int = 4) -> str:
        random, pick = self._random, self._random.choice
        if depth == 0 or random.random() < 0.25:
            return self._atom()

        def inner() -> str:
            return self._tree(depth - 1)

        kind = random.randrange(12)
        if kind < 3:
            return f"({inner()} {pick(_SIGNS)} {inner()})"
        if kind == 3:
            return f"{pick(_FUNCTIONS)}({inner()})"
        if kind == 4:
            name = pick(["w", "x", "workers", "len", "w, x", "_"])
            test = f" if {inner()}" if random.random() < 0.3 else ""
            return f"[{inner()} for {name} in {inner()}{test}]"
        if kind == 5:
            return f"{pick(['any', 'sum', 'len', 'max'])}({inner()} for w in {inner()})"
        if kind == 6:
            return f"{inner()}[{inner()}]"
        if kind == 7:
            return f"{inner()}.{pick([*_FIELDS, *_DUNDERS])}"
        if kind == 8:
            return f"({inner()} if {inner()} else {inner()})"
        if kind == 9:
            return f"{pick(['not', '-', '+', '~'])} {inner()}"
        if kind == 10:
            return f"[{inner()}, {inner()}, {inner()}]"
        odd = ["lambda: {}", "{{{}: 1}}", "{{{}}}", "*{}", "await {}", "yield {}", "{}[1:2]",
               "f'{{{}}}'", "{}(*workers)", "{}.format(queue)", "'%s' % {}"]  # fmt: skip
        return f"({pick(odd).format(inner())})"

    def _deep(self) -> str:
        """Much inside each other."""
        pick, atom = self._random.choice, self._atom()
        times = pick([50, 120, 240, 480, 1_900])
        begin, end = pick(
            [("(", ")"), ("[", "]"), ("-", ""), ("not ", ""), ("len([", "])"), ("abs(", ")"),
             ("1 if 1 else ", ""), ("any(w for w in ", ")"), ("{", "}"), ("1+(", ")"),
             ("", ".name"), ("", "[0]"), ("lambda:", "")]
        )  # fmt: skip
        return begin * times + atom + end * times

    def _wide(self) -> str:
        """Much beside each other."""
        pick = self._random.choice
        times = pick([50, 160, 240, 1_900])
        sign = pick([" + ", " and ", " < ", " == ", ", ", " * ", " in ", " or "])
        return f"[{sign.join([self._atom()] * times)}]"

    def _costly(self) -> str:
        """Much to do."""
        pick, times = self._random.choice, self._random.randint(1, 6)
        loops = "".join(f" for {pick('wxyz')} in {pick(_MANY)}" for _ in range(times))
        value = pick(
            ["1", "w", "workers", "[workers]", "'a' * 999999", "[0] * 999999999", "2 ** 99999",
             "groups[x].properties[y].mean", "properties[x].mean", "w.properties[x] in tags",
             "9" * 3_000, "sum(workers)", "'gpu' in w.tags", "[w, x]", "w.name in queue.jobs",
             "99999999 * 99999999 * 99999999"]
        )  # fmt: skip
        return f"{pick(['sum', 'any', 'len', 'max', 'min', 'all'])}({value}{loops})"

    def _spoilt(self, text: str) -> str:
        random = self._random
        place = random.randrange(len(text) + 1)
        more = random.choice(
            ["", "(", ")", "\x00", "\n", "\\", "#", "'", "\uff41", "\u202e", "\ud800"]
        )
        return text[:place] + more + text[place + random.randrange(3) :]


_GOOD = ["w.properties.load", "w.name", "queue.waiting", "groups.g0.properties.load.mean", "1",
         "properties.p1.max", "workers[0].cpus", "w", "x", "'gpu'", "len(workers)", "w.tags",
         "queue.jobs[0].priority", "environments.venv.ready", "unmet.tasks"]  # fmt: skip
_MANY = ["workers", "queue.jobs", "groups", "properties", "groups.g0.workers", "w.tags",
         "[v for v in workers]", "groups.g0.properties", "manager.clients"]  # fmt: skip


class Escaped(Exception):
    """It has done what no rule may do."""


_watching: list[bool] = [False]
_hooked: list[bool] = [False]


@contextmanager
def nothing_escapes() -> Iterator[None]:
    """Raises where something inside opens, imports, runs or connects, or looks at frames."""
    if not _hooked[0]:
        sys.addaudithook(_audit)  # for good: Python has no way to take one off
        _hooked[0] = True
    _watching[0] = True
    try:
        yield
    finally:
        _watching[0] = False


def _audit(event: str, given: tuple[object, ...]) -> None:
    if not _watching[0] or not event.startswith(_ESCAPES):
        return
    if event == "import" and given[0] in _OF_THE_PARSER:
        return
    _watching[0] = False
    raise Escaped(f"{event} {given[:1]}")


def _short(error: ExpressionError) -> ExpressionError:
    assert len(str(error)) < 1_000
    assert "\n" not in str(error)
    return error


def try_expression(text: str, views: dict[str, object]) -> object:
    """What becomes of an expression: a value or an `ExpressionError`. Others are troubles."""
    with nothing_escapes():
        try:
            return TriggerExpression(text, NAMES).evaluate(views)
        except ExpressionError as error:
            return _short(error)


def try_command(text: str, views: dict[str, object]) -> object:
    """What becomes of a command: actions or an `ExpressionError`. Others are troubles."""
    with nothing_escapes():
        try:
            actions = TriggerActions(text).of(views)
        except ExpressionError as error:
            return _short(error)
    for action in actions:
        assert action.name in ACTIONS
        texts = [*action.given, *action.named.values()]
        assert all(len(each) <= MOST_TEXT_CHARACTERS for part in texts for each in part)
        str(action)
    return actions


def try_printed(printed: bytes, return_type: str) -> None:
    """What is printed is a value of the type within its bounds, or missing for a short reason."""
    with nothing_escapes():
        reading = read_printed(printed, return_type, 5.0)
    value = reading.value
    if value is None:
        assert reading.missing.isprintable()
        assert 0 < len(reading.missing) <= MOST_REASON_CHARACTERS
        return
    assert type(value).__name__ == return_type
    if isinstance(value, str):
        assert value.isprintable()
        assert len(value.encode()) <= MOST_TEXT_BYTES
    else:
        assert abs(value) <= (LARGEST_FLOAT if isinstance(value, float) else LARGEST_INT)
    assert msgspec.json.decode(msgspec.json.encode(value)) == value
