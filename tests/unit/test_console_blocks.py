"""What pages have their readers type is found, and output that differs is noticed."""

from __future__ import annotations

from console_blocks import Typed, expects_failure, lines_missing, typed


def page(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def test_a_command_is_found_with_its_line_and_what_is_shown() -> None:
    text = page("# Title", "", "```console", "$ up", "pool is up", "$ down", "```")
    assert list(typed(text)) == [Typed(4, "up", ["pool is up"]), Typed(6, "down", [])]


def test_a_block_without_prompts_is_nothing_but_commands() -> None:
    text = page("```sh", "git pull", "", "# now", "make  # all", "```")
    assert [each.command for each in typed(text)] == ["git pull", "make  # all"]
    assert [each.line for each in typed(text)] == [2, 5]


def test_a_here_document_belongs_to_its_command() -> None:
    text = page("```console", "$ cat >a <<END", "$ is no prompt", "END", "$ cat a", "x", "```")
    assert list(typed(text)) == [
        Typed(2, "cat >a <<END\n$ is no prompt\nEND", []),
        Typed(5, "cat a", ["x"]),
    ]


def test_a_command_goes_on_behind_a_backslash() -> None:
    text = page("```console", "$ echo \\", "  a", "a", "```")
    assert list(typed(text)) == [Typed(2, "echo \\\n  a", ["a"])]


def test_other_blocks_are_not_typed() -> None:
    assert list(typed(page("```yaml", "$ up", "```", "```text", "$ up", "```"))) == []


def test_numbers_and_their_units_may_differ() -> None:
    shown = ["job 1 done: 1,000 tasks in 890 ms", "w1   0.2.0.dev3+g1a2b"]
    seen = ["job 7 done: 2 tasks in 1.1 s", "w2 0.2.0"]
    assert lines_missing(shown, seen) == []


def test_words_may_not_differ() -> None:
    assert lines_missing(["job 1 done: 3 tasks"], ["job 1 failed: 3 tasks"]) != []


def test_a_terminal_may_show_more_than_the_page() -> None:
    assert lines_missing(["a", "...", "c"], ["first", "a", "b", "c", "last"]) == []


def test_one_line_that_is_missing_hides_no_other() -> None:
    assert lines_missing(["a", "x", "b"], ["a", "b"]) == ["x"]


def test_lines_may_come_in_another_order_but_as_often() -> None:
    assert lines_missing(["a", "b"], ["b", "a"]) == []
    assert lines_missing(["a", "a"], ["a", "b"]) == ["a"]


def test_a_page_that_shows_an_error_expects_one() -> None:
    assert expects_failure(["job 1: 1 task", "error: it failed", "..."])
    assert not expects_failure(["no error: here"])
