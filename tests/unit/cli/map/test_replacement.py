"""Replacement strings of GNU parallel become placeholders of a job, and inputs never code."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kestrelctl.cli.map.replacement import (
    MappedCommand,
    MappedInput,
    part_of,
    refuse_code,
    with_arguments,
)
from kestrelctl.core.model.job.placeholders import Placeholders, fill
from kestrelctl.errors import UsageError


def runs(words: list[str], *arguments: str, number: int = 1) -> list[str]:
    """The words that a worker runs for an input."""
    task = MappedInput(number, arguments)
    shape = MappedCommand(words).shape(len(arguments))
    filled = list(fill(shape.argv, 5, 6, shape.item(task), Placeholders.ARRAY))
    assert filled == shape.filled(task)
    return filled


#: As parallel 20221122 fills `{/}`, `{//}`, `{/.}` and `{.}`.
PARTS = {
    "a": ("a", ".", "a", "a"),
    "/": ("", "/", "", "/"),
    "/a": ("a", "/", "a", "/a"),
    "a/": ("", ".", "", "a/"),
    "a/b.c": ("b.c", "a", "b", "a/b"),
    ".x": (".x", ".", "", ""),
    "a.b/c.": ("c.", "a.b", "c", "a.b/c"),
    "//": ("", "/", "", "//"),
    "a//b": ("b", "a", "b", "a//b"),
    "": ("", ".", "", ""),
}


@pytest.mark.parametrize("argument", PARTS)
def test_parts_of_an_argument_are_those_of_parallel(argument: str) -> None:
    assert tuple(part_of(argument, part) for part in ("/", "//", "/.", ".")) == PARTS[argument]


def test_a_command_without_replacement_strings_ends_with_all_arguments() -> None:
    assert runs(["echo"], "a") == ["echo", "a"]
    assert runs(["echo"], "a b", "c") == ["echo", "a b", "c"]


def test_a_number_that_no_input_can_have_is_no_place() -> None:
    assert runs(["echo", "{1}", f"{{{'9' * 5000}}}"], "a") == ["echo", "a", f"{{{'9' * 5000}}}"]


def test_each_string_is_replaced_wherever_it_stands() -> None:
    words = ["fit", "{}", "--out={/.}.csv", "{//}", "{#}", "{{}}", "{1}{-1}"]
    assert runs(words, "d/a.txt", number=7) == [
        "fit", "d/a.txt", "--out=a.csv", "d", "7", "{d/a.txt}", "d/a.txtd/a.txt",
    ]  # fmt: skip


def test_of_several_arguments_each_is_a_word() -> None:
    assert runs(["echo", "x{}y", "{.}"], "a b", "1.2") == ["echo", "xa b", "1.2y", "a b", "1"]


def test_a_place_names_one_argument() -> None:
    assert runs(["echo", "{2}", "{1/.}", "{-2}"], "d/a.c", "b") == ["echo", "b", "a", "d/a.c"]


def test_what_is_missing_is_no_word_and_nothing_in_one() -> None:
    assert runs(["echo", "[{3}]", "{3}", "{-4/}{3}", "{2}"], "a", "") == ["echo", "[]", ""]


def test_an_item_is_the_argument_itself_if_nothing_else_is_replaced() -> None:
    shape = MappedCommand(["gzip", "-k", "{}"]).shape(1)
    assert (shape.argv, shape.item(MappedInput(1, ("a",)))) == (("gzip", "-k", "{}"), "a")


def test_braces_that_are_not_parallel_s_stay_as_they_were_typed() -> None:
    words = ["awk", "{print}", "{n}", "{{i}}", "{_1}", "${n}", "{", "{{n}"]
    assert runs(words, '{"print": "system()", "_1": "x"}')[:-1] == words


TEXT = st.text(st.sampled_from('{}$#./n i_1"a2-'), max_size=12)


@given(
    words=st.lists(TEXT, min_size=1, max_size=4), arguments=st.lists(TEXT, min_size=1, max_size=3)
)
@example(words=["{{_1}}", "{}"], arguments=['{"_1": 1}'])
def test_a_worker_runs_what_the_words_say_whatever_braces_there_are(
    words: list[str], arguments: list[str]
) -> None:
    if any("{=" in word for word in words):
        return
    assert runs(words, *arguments)


@pytest.mark.parametrize("word", ["{%}", "{= $_++ =}", "{=1 uc =}"])
def test_what_has_no_meaning_here_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="has no meaning here"):
        MappedCommand(["echo", word])


@pytest.mark.parametrize(
    ("line", "spelled"),
    [
        ("echo {} | wc -c", ['echo "$1" | wc -c', "sh", "{}"]),
        ("echo \"x {}\" '{/}' {}", ['echo "x $1" \'\'"$2"\'\' "$1"', "sh", "{}", "{/}"]),
        ("echo hi; echo", ['echo hi; echo "$@"', "sh", "{}"]),
        ('echo \\"{}', ['echo \\""$1"', "sh", "{}"]),
    ],
)
def test_a_line_for_a_shell_is_refused_with_the_spelling_that_works(
    line: str, spelled: list[str]
) -> None:
    with pytest.raises(UsageError, match="no shell reads the command") as caught:
        refuse_code([line], paste_items=False)
    assert caught.value.hint is not None
    assert shlex.split(caught.value.hint) == ["kestrelctl", "map", "sh", "-c", *spelled]
    assert with_arguments(line) == ["sh", "-c", *spelled]
    refuse_code(["sh", "-c", *spelled], paste_items=False)


def test_an_input_in_the_text_of_a_shell_is_refused_unless_inputs_are_code() -> None:
    words = ["env", "A=1", "bash", "-c", "echo {/}"]
    with pytest.raises(UsageError, match="would run a part of an input as code") as caught:
        refuse_code(words, paste_items=False)
    assert caught.value.hint is not None
    assert "kestrelctl map env A=1 bash -c 'echo \"$1\"' sh {/}" in caught.value.hint
    refuse_code(words, paste_items=True)
    refuse_code(["./fit"], paste_items=False)
    refuse_code(["echo", "a;b"], paste_items=False)
