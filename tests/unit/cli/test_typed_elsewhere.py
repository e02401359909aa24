"""What users of other systems type out of habit: it works, or one error says how it is written.

The table is `typed_elsewhere.toml`: lines from the manuals of five systems.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_fake_pool import ENDED_JOB, FakePool, FakeShare, job_with, run
from click.testing import Result
from runningpool import RunningPool, echo

from kestrelctl.cli.main import kestrelctl
from kestrelctl.cli.map import run as map_run
from kestrelctl.cli.other_systems import spelled
from kestrelctl.client import pool as client_pool
from kestrelctl.grammar.other_words import COMMANDS, OPTIONS, VALUES, OtherOption
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq

LINES = tomllib.loads((Path(__file__).parent / "typed_elsewhere.toml").read_text())["line"]
SYSTEMS = ("Slurm", "HTCondor", "HyperQueue", "GNU parallel", "Nomad")
#: A moment after the dates of the table.
NOW = 2_000_000_000.0
PROGRAM = "kestrelctl "
#: What maps waits for its tasks.
MAP = f"{PROGRAM}map "
MAPPED = sorted({line["hint"] for line in LINES if line.get("hint", "").startswith(MAP)})
#: What starts or stops a pool is not run for a test.
NOT_PASTED = ("up", "down", "-- COMMAND; docs/other-systems.md has the words")


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that the lines speak of."""
    (tmp_path / "names.txt").write_text("ada\ngrace\n")
    (tmp_path / "job.sub").write_text("executable = job.sh\nqueue 10\n")
    (tmp_path / "job.toml").write_text('command = ["true"]\n')
    (tmp_path / "web.nomad.hcl").write_text('job "web" {}\n')
    (tmp_path / "described.sh").write_text(
        "#!/bin/sh\n#SBATCH --mem=2G -t 90  # generous\n#SBATCH --array=1-10\n\necho hello\n"
        "#SBATCH --hold\n"
    )
    (tmp_path / "job.sh").write_text("#!/bin/sh\necho hello\n")
    (tmp_path / "job.sh").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LANG", "C.UTF-8")
    return tmp_path


def a_pool() -> FakePool:
    """A pool whose jobs have one task each, which has ended."""
    job = job_with(msgspec.structs.replace(ENDED_JOB, tasks=1, ids="0"), first=0)
    return FakePool(ListJobs=an.Jobs(id="", jobs=[job]))


def typed(pool: FakePool, words: list[str], stdin: bytes | None = None) -> Result:
    return run(pool, *words, share=FakeShare(), now=NOW, stdin=stdin)


def pasted(hint: str) -> Result:
    """What comes of a hint that is pasted into a shell."""
    hint, _, inner = hint.partition("$(kestrelctl ")
    if inner:
        found = typed(a_pool(), shlex.split(inner.removesuffix(")")))
        assert found.exit_code == 0, found.stderr
        hint += found.stdout
    before, _, line = hint.rpartition(PROGRAM)
    items = shlex.split(before.removesuffix("| "))[2:]  # of `printf '%s\n' …`
    stdin = "".join(f"{item}\n" for item in items).encode() or None
    return typed(a_pool(), shlex.split(line), stdin)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["typed"])
def test_a_line_works_or_one_error_says_how_it_is_written(line: dict[str, Any]) -> None:
    pool = a_pool()
    result = typed(pool, shlex.split(line["typed"]))
    if line.get("works"):
        assert result.exit_code == 0, result.stderr
        assert pool.asked
        return
    assert result.exit_code == 2, result.stdout
    assert not pool.asked, "nothing else than was meant"
    said = result.stderr.splitlines()
    assert [each.partition(":")[0] for each in said if not each.startswith("cause")] == [
        "error",
        "hint",
    ]
    assert said[-1] == f"hint: {line['hint']}"


@pytest.mark.parametrize(
    "hint",
    sorted(
        {
            line["hint"]
            for line in LINES
            if PROGRAM in line.get("hint", "") and not line["hint"].endswith(NOT_PASTED)
        }
        - set(MAPPED)
    ),
)
def test_a_hint_works_when_it_is_pasted(hint: str) -> None:
    result = pasted(hint)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("hint", MAPPED)
def test_a_hint_that_maps_works_when_it_is_pasted(
    hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_pool, "LONGEST_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(map_run, "_LOOK_SECONDS", 0.0)
    result = run(RunningPool(echo), *shlex.split(hint)[1:])
    assert result.exit_code == 0, result.stderr


def test_there_are_a_hundred_lines_of_five_systems() -> None:
    count = Counter(line["system"] for line in LINES)
    assert sum(count[system] for system in SYSTEMS) >= 100
    assert all(count[system] >= 15 for system in SYSTEMS)
    assert len({line["typed"] for line in LINES}) == len(LINES)


def test_a_word_with_another_meaning_there_is_named_as_such() -> None:
    said = run(FakePool(), "submit", "-t", "90", "--mem", "2048", "./job.sh").stderr
    assert said == (
        "error: no such option '-t'\n"
        "cause: a time without a unit is minutes in Slurm and seconds here, and the limit is for "
        "each task; a number alone is MiB there and bytes here\n"
        "hint: kestrelctl submit --time-limit 90m --memory 2048M -- ./job.sh\n"
    )
    said = run(FakePool(), "submit", "--max-fails", "3", "./job.sh").stderr
    assert "--max-failures counts the tries of one task" in said


def test_a_line_is_proposed_only_if_all_of_its_words_are_understood() -> None:
    for words in (
        ["submit", "--mem", "2G", "--frobnicate", "./job.sh"],
        ["submit", "--mem", "lots", "./job.sh"],
        ["frobnicate"],
        ["job", "frobnicate"],
        [],
    ):
        assert spelled(kestrelctl, words) is None, words
    said = run(FakePool(), "submit", "--mem", "lots", "./job.sh").stderr
    assert said.startswith("error: no such option '--mem'\nhint: did you mean --memory")


@pytest.mark.parametrize(
    "words",
    [
        "parallel -N2 echo ::: a b c d",
        "parallel 'echo {.} | wc -c' ::: a.txt",
        "submit echo ::: a :::+ b",
        "hq submit --stdin ./job.sh",
        "hq task cancel 12 3 4",
        "submit --dependency=singleton ./job.sh",
        "submit --dependency=afterok:12?afterok:13 ./job.sh",
        "submit --constraint 'a100|h100' ./job.sh",
        "submit -x node[1-3] ./job.sh",
        "submit -x node1 --requirements true -- ./job.sh",
        "submit -append x=1 ./job.sh",
        "nomad job dispatch web",
        "scancel -t PENDING -u ada",
        "scancel -t PENDING 12",
    ],
)
def test_a_line_that_would_do_something_else_is_not_proposed(words: str) -> None:
    found = spelled(kestrelctl, shlex.split(words))
    assert found is None or found.hint.endswith(" --help")


def test_a_command_is_named_though_its_options_are_not_understood() -> None:
    said = run(FakePool(), "squeue", "--frobnicate").stderr
    assert said == (
        "error: there is no command 'squeue'\n"
        "cause: `squeue` is `kestrelctl job list` here\n"
        "hint: kestrelctl job list --help\n"
    )


def test_an_error_of_our_own_words_keeps_its_hint() -> None:
    assert spelled(kestrelctl, ["submit", "--array", "9-1", "--", "./job.sh"]) is None
    said = run(FakePool(), "submit", "--array", "9-1", "--", "./job.sh").stderr
    assert said.endswith("hint: write --array 1-9 instead\n")


def test_a_proposed_line_asks_the_pool_that_was_asked() -> None:
    said = run(FakePool(), "squeue", "--pool", "b").stderr
    assert said.endswith("hint: kestrelctl --pool b job list\n")
    said = run(FakePool(), "--pool", "b", "logs", "3").stderr
    assert said.endswith("hint: kestrelctl --pool b job logs 3\n")
    said = run(FakePool(), "submit", "--pool", "b", "--mem", "2G", "./job.sh").stderr
    assert said.endswith("hint: kestrelctl --pool b submit --memory 2G -- ./job.sh\n")


def test_to_ask_for_the_last_job_of_a_line_asks_no_pool() -> None:
    pool = FakePool()
    said = run(pool, "submit", "--mem", "2G", "--after", "last", "./job.sh").stderr
    assert said.endswith("hint: kestrelctl submit --memory 2G --after last -- ./job.sh\n")
    assert not pool.asked


def test_what_a_script_tells_another_system_is_not_passed_over_in_silence() -> None:
    result = run(FakePool(), "submit", "--", "sh", "described.sh")
    assert result.exit_code == 0
    assert (
        "warning: the lines #SBATCH of described.sh are for Slurm, and nobody reads them here\n"
        "hint: say it on the line: --memory 2G --time-limit 90m --array=1-10\n"
    ) in result.stderr
    assert "warning" not in run(FakePool(), "submit", "--", "./job.sh").stderr


def test_what_the_line_says_goes_before_what_the_script_says() -> None:
    said = run(FakePool(), "submit", "--mem", "4G", "described.sh").stderr
    assert said.endswith(
        "kestrelctl submit --time-limit 90m --array=1-10 --memory 4G -- /bin/sh described.sh\n"
    )


def test_a_queue_is_not_run_as_a_command() -> None:
    pool = FakePool()
    said = run(pool, "submit", "-q", "long", "./job.sh").stderr
    assert said == (
        "error: -q is --quiet here, and 'long' would be the command\n"
        "cause: there are no queues: --requires names a tag of workers\n"
        "hint: kestrelctl submit -q -- long ./job.sh, if it is a command\n"
    )
    assert not pool.asked
    for words in (["sh", "./job.sh"], ["--", "long", "./job.sh"]):
        assert run(FakePool(), "submit", "-q", *words).exit_code == 0, words


def test_a_program_with_a_blank_in_its_name_and_parallel_itself_can_be_run(desk: Path) -> None:
    (desk / "my program").write_text("#!/bin/sh\n")
    assert run(FakePool(), "submit", "--", "./my program").exit_code == 0
    pool = FakePool()
    assert run(pool, "submit", "--", "parallel", "echo", ":::", "a", "b").exit_code == 0
    assert pool.last(rq.SubmitJob).spec.program.argv[-3:] == (":::", "a", "b")


@pytest.mark.parametrize("option", ["--stdout", "--stderr"])
def test_output_is_not_written_to_a_file_of_another_name_than_was_meant(option: str) -> None:
    said = run(FakePool(), "submit", option, "none", "--", "./job.sh").stderr
    assert "a file with the name `none`" in said
    assert run(FakePool(), "submit", option, "100%.txt", "--", "./job.sh").exit_code == 0
    assert "%j in out-%j stays" in run(FakePool(), "job", "logs", "7", "--to", "out-%j").stderr


def test_each_option_of_the_table_is_one_that_its_command_does_not_have() -> None:
    for name, table in OPTIONS.items():
        command: Any = kestrelctl
        for word in name.split():
            command = command.get_command(None, word)
        own = {each for param in command.params for each in param.opts}
        others = [each for names in table for each in names.split()]
        assert own.isdisjoint(others), name
        assert len(others) == len(set(others)), name
        assert own.issuperset(VALUES.get(name, {})), name


def test_each_form_of_a_value_is_used() -> None:
    from kestrelctl.grammar.other_words import FORMS

    tables = [*OPTIONS.values(), *({k: v[1] for k, v in t.items()} for t in VALUES.values())]
    every: list[OtherOption] = [option for table in tables for option in table.values()]
    assert {
        word
        for option in every
        for word in f"{option.here} {option.whole}".split()
        if word in FORMS
    } == set(FORMS)


def test_each_command_of_the_table_leads_to_one_of_ours() -> None:
    assert all(COMMANDS.values())
    for place, table in COMMANDS.items():
        for words, found in table.items():
            for here in filter(None, (found.here, found.with_words)):
                command: Any = kestrelctl
                for word in here.split():
                    if hasattr(command, "commands") or command is kestrelctl:
                        if word.startswith("--"):
                            break
                        command = command.get_command(None, word)
                        assert command is not None, here
            group: Any = kestrelctl.get_command(None, place) if place else kestrelctl  # type: ignore[arg-type]
            assert group.get_command(None, words[0]) is None, words


PAGE = (Path(__file__).parents[3] / "docs" / "other-systems.md").read_text()
ROWS = re.findall(r"^\| (`.*) \| (.*?) \|$", PAGE.replace("\\|", "¦"), re.MULTILINE)


@pytest.mark.parametrize(
    "line", re.findall(r"`((?:printf[^`]*)?kestrelctl [^`]*)`", " ".join(row[1] for row in ROWS))
)
def test_a_command_of_the_page_works(line: str) -> None:
    result = pasted(line.replace("¦", "|"))
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    "words",
    [
        words
        for _, here in ROWS
        for words in re.findall(r"`(--[^`]*)`", here)
        if words not in ("--output", "--max-failures", "--span 4")
    ],
)
def test_an_option_of_the_page_is_one_of_submit(words: str) -> None:
    options = shlex.split(words.replace("¦", "|"))
    command = [] if "--" in options else ["--", "./job.sh"]
    if options[0] == "--stdout":
        command = ["--array", "1-3", *command]
    result = typed(FakePool(), ["submit", *options, *command])
    assert result.exit_code == 0, result.stderr


def test_the_first_example_of_the_page_is_what_is_said() -> None:
    block = PAGE.partition("```console\n$ kestrelctl ")[2].partition("```")[0]
    line, _, said = block.partition("\n")
    assert typed(FakePool(), shlex.split(line)).stderr == said
