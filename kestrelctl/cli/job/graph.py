"""`kestrelctl job graph`: which jobs wait for which, as text, for Graphviz, or drawn by it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.job.arguments import jobs_argument
from kestrelctl.cli.show.command_output import CommandOutput, Record, Table
from kestrelctl.cli.show.grid import cut
from kestrelctl.core.model.job.after import WantedEnd
from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.grammar.click_types import FilePath
from kestrelctl.grammar.id_ranges import LAST
from kestrelctl.protocol.job_answers import GraphEdge, GraphNode, JobGraph
from kestrelctl.protocol.job_requests import DrawGraph

#: Deeper levels are not indented further: they would leave the screen.
_DEEPEST = 10
_LONGEST_NAME = 40
_DRAW_SECONDS = 120.0
_COLOURS = {
    "done": "palegreen",
    "failed": "lightcoral",
    "cancelled": "lightgrey",
    "active": "lightskyblue",
    "waiting": "white",
    "held": "khaki",
}


@click.command("graph", cls=CliCommand)
@jobs_argument(unnamed=LAST)
@click.option("--dot", is_flag=True, help="Print the graph as text for Graphviz.")
@click.option(
    "--svg",
    type=FilePath(),
    metavar="FILE",
    help="Draw the graph into this file; needs `dot` of Graphviz.",
)
@pass_invocation
def graph(invocation: Invocation, jobs: str, dot: bool, svg: Path | None) -> None:
    """Show which jobs wait for which: all that JOBS wait for, and all that wait for them."""
    program = shutil.which("dot") if svg else None
    if svg is not None and program is None:
        raise UsageError(
            "Graphviz is not installed: there is no program `dot`",
            hint="apt install graphviz, or draw it elsewhere from the text that --dot prints",
        )

    async def work(connection: Connection) -> CommandOutput | None:
        found = await ask(connection, DrawGraph(jobs=jobs), JobGraph)
        if found.more:
            invocation.screen.warn(f"only {len(found.nodes):,} jobs are shown: there are more")
        if svg is not None and program is not None:
            await _draw(program, dot_text(found), svg)
            invocation.screen.say(f"drawn: {svg}")
            return None
        if dot:
            invocation.screen.write(dot_text(found))
            return None
        return as_text(found)

    invocation.talk(work)


def as_text(graph: JobGraph) -> Record:
    """Makes a line for each job, indented by its depth, with the jobs that it waits for."""
    after = _after(graph)
    depth: dict[int, int] = {}
    rows = []
    for node in graph.nodes:
        mine = after.get(node.job_id, [])
        above = [depth[each] for edge in mine for each in _known(edge, depth)]
        depth[node.job_id] = 1 + max(above) if above else 0
        indent = "  " * min(depth[node.job_id], _DEEPEST)
        rows.append(
            [
                f"{indent}{node.job_id}",
                cut(node.name, _LONGEST_NAME),
                node.state,
                f"{node.ended:,}/{node.tasks:,}",
                ", ".join(map(_words, mine)),
            ]
        )
    headings = [("JOB", False), ("NAME", False), ("STATE", False), ("ENDED", True)]
    table = Table([*headings, ("AFTER", False)], rows)
    name = ",".join(str(node.job_id) for node in graph.nodes)
    return Record(name, graph, [table])


def dot_text(graph: JobGraph) -> str:
    """Writes the graph in Graphviz's language: https://graphviz.org/doc/info/lang.html."""
    ids = {node.job_id for node in graph.nodes}
    lines = ["digraph jobs {", '  node [shape=box, style="rounded,filled"];']
    lines += [f"  {node.job_id} [{_looks(node)}];" for node in graph.nodes]
    for edge in graph.edges:
        label = "" if edge.ending == WantedEnd.OK else f' [label="{edge.ending}"]'
        lines += [f"  {each} -> {edge.child}{label};" for each in _known(edge, ids)]
    return "\n".join([*lines, "}", ""])


def _looks(node: GraphNode) -> str:
    name = cut(node.name, _LONGEST_NAME).replace("\\", "\\\\").replace('"', '\\"')
    said = f"{node.job_id} {name}\\n{node.state} {node.ended:,}/{node.tasks:,}"
    return f'label="{said}", fillcolor={_COLOURS.get(node.state, "white")}'


def _after(graph: JobGraph) -> dict[int, list[GraphEdge]]:
    found: dict[int, list[GraphEdge]] = {}
    for edge in graph.edges:
        found.setdefault(edge.child, []).append(edge)
    return found


def _known(edge: GraphEdge, ids: dict[int, int] | set[int]) -> list[int]:
    """The parents in the range of an edge that are in the drawing."""
    return [each for each in range(edge.first, edge.last + 1) if each in ids]


def _words(edge: GraphEdge) -> str:
    jobs = str(edge.first) if edge.first == edge.last else f"{edge.first}-{edge.last}"
    return jobs if edge.ending == WantedEnd.OK else f"{jobs}:{edge.ending}"


async def _draw(program: str, text: str, path: Path) -> None:
    """Lets Graphviz draw a graph.

    Raises:
        KestrelError: Graphviz could not draw it.
    """
    process = await asyncio.create_subprocess_exec(
        program,
        "-Tsvg",
        "-o",
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_DRAW_SECONDS):
            _, said = await process.communicate(text.encode())
    except TimeoutError:
        process.kill()
        await process.wait()
        raise KestrelError(
            f"dot has not drawn it within {_DRAW_SECONDS:g} s", hint="draw fewer jobs"
        ) from None
    if process.returncode:
        cause = said.decode(errors="replace").strip().partition("\n")[0]
        raise KestrelError(f"dot could not write {path}", cause=cause or None)
