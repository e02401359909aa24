"""`kestrelctl map` on a real pool does what GNU parallel does on this machine."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_local_pool import Home, home  # noqa: F401  (a fixture)

from kestrelctl.cli.map.reading import inputs_of
from kestrelctl.cli.map.replacement import MappedCommand
from kestrelctl.cli.map.sources import column_separator, split_line
from kestrelctl.local.pool_state import pool_directory, read_state

pytestmark = pytest.mark.timeout(300)


def parallel(
    directory: Path, *words: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Runs GNU parallel in a directory."""
    env = {**os.environ, "PARALLEL_HOME": str(directory)}
    return subprocess.run(
        ["parallel", *words], cwd=directory, env=env, capture_output=True, input=stdin, timeout=100,
        check=False,
    )  # fmt: skip


def start(home: Home, *words: str) -> subprocess.Popen[bytes]:  # noqa: F811
    return subprocess.Popen(
        [sys.executable, "-m", "kestrelctl", "map", *words], cwd=home.work, env=home.env,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip


def mapped(
    home: Home,  # noqa: F811
    *words: str,
    stdin: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    process = start(home, *words)
    stdout, stderr = process.communicate(stdin, timeout=200)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


ARGUMENT = st.text(st.sampled_from("ab./ ,'$-_{}"), max_size=6).filter(
    lambda text: "{=" not in text
)
REPLACED = st.sampled_from(
    ["{}", "{.}", "{/}", "{//}", "{/.}", "{#}", "{1}", "{2.}", "{1//}", "{-1/.}", "{3/}"]
)
PIECE = st.one_of(REPLACED, st.sampled_from(["x", "-o", "a.b", "=", ","]))
SOURCE = st.tuples(
    st.sampled_from([":::", ":::", ":::+"]), st.lists(ARGUMENT, min_size=1, max_size=3)
)


@settings(max_examples=40, deadline=None)
@example(words=["{3}", "x{2.}", "{-1/}"], sources=[(":::", ["a", ""])], colsep=None)
@example(words=["{2}", "{}", "{1}"], sources=[(":::", ["a", "a,b", ",", " a , b "])], colsep=",")
@example(words=[], sources=[(":::", ["a", "b"]), (":::+", []), (":::", [])], colsep=None)
@given(
    words=st.lists(st.lists(PIECE, min_size=1, max_size=3).map("".join), max_size=3),
    sources=st.lists(SOURCE, min_size=1, max_size=3),
    colsep=st.sampled_from([None, None, ","]),
)
def test_words_mean_what_they_mean_to_parallel(
    tmp_path_factory: pytest.TempPathFactory,
    words: list[str],
    sources: list[tuple[str, list[str]]],
    colsep: str | None,
) -> None:
    line = ["echo", *words, *(word for mark, values in sources for word in (mark, *values))]
    options = ["--colsep", colsep] if colsep else []
    there = parallel(tmp_path_factory.getbasetemp(), "--dry-run", "-k", *options, *line)
    command, found = split_line(line)
    separator = column_separator(colsep) if colsep else None
    shapes = MappedCommand(command)
    here = [
        shapes.shape(len(each.arguments)).filled(each)
        for each in inputs_of(found, separator=separator, end=b"\n")
    ]
    assert here == [shlex.split(each) for each in there.stdout.decode().splitlines()]


AWKWARD = b'$(touch pwned)\nit\'s\n\n  two  words \n`id`;ls>x\n-n\n{}\n{"n": 1}\n*\n\\\nend'


def test_awkward_inputs_come_out_as_from_parallel_and_none_is_code(home: Home) -> None:  # noqa: F811
    home.run("up")
    for words in (
        ("printf", "<%s>"),
        ("-k", "printf", "%s|%s|%s|%s", "{}", "{/}", "{#}", "{.}"),
        ("-k", "--tag", "printf", "%s:%s", "{1}", "{2}", ":::", "a b", "c", ":::", "1", "2"),
        ("-k", "--colsep", " ", "printf", "%s,%s", "{2}", "{1}"),
    ):
        # The words of a format are code to parallel, and not here.
        theirs = [f"'{word}'" if "%" in word else word for word in words]
        there = parallel(home.work, "-k", *theirs, stdin=AWKWARD)
        here = mapped(home, "-k", *words, stdin=AWKWARD)
        assert (here.stdout, here.returncode) == (there.stdout, there.returncode), here.stderr
    assert not list(home.work.glob("pwned"))
    assert not list(home.work.glob("x"))


def test_a_thousand_inputs_keep_their_order_though_the_manager_dies(home: Home) -> None:  # noqa: F811
    home.run("up")
    words = ("sh", "-c", 'echo "$1"; echo to stderr >&2; exit $(($1 % 500 == 0))', "sh", "{}")
    process = start(home, "-k", "--joblog", "log", *words)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("".join(f"{number}\n" for number in range(1, 501)).encode())
    process.stdin.flush()
    first = process.stdout.readline()
    state = read_state(pool_directory("default"))
    assert state is not None
    psutil.Process(state.manager_pid).kill()
    process.stdin.write("".join(f"{number}\n" for number in range(501, 1501)).encode())
    rest, errors = process.communicate(timeout=200)
    assert (first + rest).decode().split() == [str(number) for number in range(1, 1501)], errors
    assert errors.count(b"to stderr") == 1500
    assert process.returncode == 3
    logged = (home.work / "log").read_text().splitlines()[1:]
    assert sorted(int(line.split("\t")[0]) for line in logged) == list(range(1, 1501))

    again = mapped(
        home, "--joblog", "log", "--resume-failed", *words,
        stdin="".join(f"{number}\n" for number in range(1, 1503)).encode(),
    )  # fmt: skip
    assert sorted(map(int, again.stdout.split())) == [500, 1000, 1500, 1501, 1502]
    done = mapped(home, "--joblog", "log", "--resume", *words, ":::", *map(str, range(1, 1503)))
    assert (done.returncode, done.stdout) == (0, b"")


def test_the_first_inputs_run_while_others_have_yet_to_come(home: Home) -> None:  # noqa: F811
    home.run("up")
    process = start(home, "echo", "got")
    assert process.stdin is not None
    assert process.stdout is not None
    for word in (b"one", b"two", b"three"):
        process.stdin.write(word + b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"got " + word + b"\n"
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 0


def test_outputs_of_any_size_are_whole_and_tasks_may_end_all(home: Home) -> None:  # noqa: F811
    home.run("up")
    script = 'head -c "$1" /dev/zero | tr "\\\\0" x; printf "\\377\\n"'
    sizes = (0, 4_000, 5_000, 700_000, 3_000_000)
    found = mapped(home, "-k", "sh", "-c", script, "sh", "{}", ":::", *map(str, sizes))
    assert found.stdout == b"".join(b"x" * size + b"\xff\n" for size in sizes)

    stopped = mapped(home, "--halt", "now,fail=1", "sh", "-c", 'sleep "$1"; exit 9', "sh",
                     ":::", "0", *["1000"] * 10)  # fmt: skip
    assert stopped.returncode == 9
    script = 'sleep "$1"; echo "$1"; test "$1" -gt 0'
    words = ("sh", "-c", script, "sh", ":::", "0", "1", *["2"] * 50)
    soon = mapped(home, "-k", "-j2", "--halt", "soon,fail=1", *words)
    assert soon.returncode == 1
    assert soon.stdout.startswith(b"0\n1\n"), "what ran has come to its end"
    assert len(soon.stdout.split()) < 52

    process = start(home, "sleep", ":::", "1000")
    home.until(lambda: any(job["running"] for job in home.json("job", "list")), "nothing runs")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"cancelled: job" in errors
    home.until(lambda: "active" not in home.jobs().values(), "a job goes on")


def test_fifty_thousand_inputs_are_run_and_a_large_one_is_refused(home: Home) -> None:  # noqa: F811
    home.run("up")
    count = 50_000
    lines = "".join(f"{number}\n" for number in range(count)).encode()
    found = mapped(home, "--joblog", "log", "true", stdin=lines)
    assert found.returncode == 0, found.stderr
    logged = (home.work / "log").read_text().splitlines()[1:]
    assert {int(line.split("\t")[0]) for line in logged} == set(range(1, count + 1))
    assert len(logged) == count
    refused = mapped(home, "echo", stdin=b"x" * 200_000)
    assert refused.returncode == 2
    assert b"input 1 takes 200,000 bytes" in refused.stderr
    odd = mapped(home, "echo", stdin=b"a\n\xff\n")
    assert odd.returncode == 2
    assert b"line 2 of standard input is not UTF-8" in odd.stderr
