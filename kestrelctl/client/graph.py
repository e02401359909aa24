"""Several jobs of which some wait for others, as their author describes them.

A program describes them by `Graph.add`, a job file by tables `[job.NAME]`. `graph_sending` submits
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from kestrelctl.errors import UsageError
from kestrelctl.grammar.after_words import split_ending
from kestrelctl.grammar.parent_file_words import parents_named


class Draft(msgspec.Struct, frozen=True):
    """A job as its author describes it.

    Attributes:
        argv: the command.
        options: values by `Option.dest` of the options of `submit`.
        items: one for each task; None if options say which tasks it has.
    """

    argv: tuple[str, ...]
    options: dict[str, Any]
    items: tuple[str, ...] | None = None


class Graph:
    """Jobs by name, of which some wait for others.

    graph = Graph()
    prepare = graph.add("prepare", "seq 5 >numbers", keep=["numbers"])
    graph.add("fit", ["./fit", "{n}"], array="1-100", after=prepare)
    jobs = pool.submit_graph(graph)

    Attributes:
        jobs: each has the option `name`.
        after: for each job, the words that say what it waits for.
        after_each: for each job whose tasks each wait for one of another job, the word for that.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Draft] = {}
        self.after: dict[str, list[str]] = {}
        self.after_each: dict[str, str] = {}

    def add(
        self,
        name: str,
        command: str | Sequence[str],
        *,
        items: Iterable[object] | None = None,
        after: object = (),
        after_each: object = None,
        **options: Any,
    ) -> str:
        """Adds a job, in any order; returns its name, by which others wait for it.

        Args:
            command, items, options: as those of `AsyncClient.submit`; `input=["job:NAME"]` has what
                tasks of another job of the graph leave.
            after: what it waits for: the name of another job of the graph, a pattern for several,
                such as `fit-*`, a job of the pool or its number, each as text also with the end
                that it must come to, such as `fit:ended`; or a list of these.
            after_each: the job for whose tasks its tasks wait, one for one.

        Raises:
            UsageError: there is a job of that name, no command, or an item that JSON cannot say.
        """
        from kestrelctl.client.given import line_of, plain, words_of  # no job file needs it

        if name in self.jobs:
            raise UsageError(f"two jobs of the graph are called {name!r}")
        given = {key: plain(value) for key, value in options.items()} | {"name": name}
        if "input" in given:
            given["input"] = _texts(given["input"])
        lines = None if items is None else tuple(map(line_of, items))
        each = None if after_each is None else str(plain(after_each))
        self.put(name, Draft(words_of(command), given, lines), _texts(plain(after)), each)
        return name

    def put(self, name: str, job: Draft, after: list[str], after_each: str | None) -> None:
        """Adds a job, which also waits for the jobs whose files it wants."""
        parents = parents_named(job.options.get("input", ()))
        missing = [each for each in parents if each != after_each]
        self.jobs[name] = job
        self.after[name] = _with_parents(after, missing)
        if after_each is not None:
            self.after_each[name] = after_each


def _texts(given: Any) -> list[str]:
    """Returns the words of a value that is one, or several; None is no word."""
    if given is None:
        return []
    several = isinstance(given, Iterable) and not isinstance(given, str)
    return list(map(str, given)) if several else [str(given)]


def _with_parents(words: list[str], parents: list[str]) -> list[str]:
    """Adds the jobs whose files a job wants to the words that say what it waits for."""
    named = [split_ending(word)[0] for word in words]
    missing = [each for each in parents if not any(fnmatchcase(each, glob) for glob in named)]
    return words + list(dict.fromkeys(missing))
