"""Curly quotes of phones and slides are the straight ones that were typed."""

from __future__ import annotations

import json

import pytest

from kestrelctl.chat.curly_quotes import quotation
from kestrelctl.chat.typed_json import is_json, plain_json
from kestrelctl.errors import UsageError


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("“a b”", "a b"),
        ("“a b“", "a b"),
        ("„a b“", "a b"),
        ("„a b”", "a b"),
        ("”a b”", "a b"),
        ("„“", ""),
        ("‘a b’", "a b"),  # noqa: RUF001
        ("“say “hi” now”", 'say "hi" now'),
        ("““hi” there”", '"hi" there'),
        ("“say \\“hi\\” now”", 'say "hi" now'),
        ('“it is "so" $x”', 'it is "so" $x'),
        ("‘echo “a  b”’", 'echo "a  b"'),  # noqa: RUF001
        ("‘print(“hi”)’", 'print("hi")'),  # noqa: RUF001
        ("“sh -c ‘ls “a b”’”", "sh -c 'ls \"a b\"'"),  # noqa: RUF001
        ("„er sagt “hi” da“", 'er sagt "hi" da'),
        ("“er sagt „so“ da”", 'er sagt "so" da'),
        ("„so geht’s“", "so geht’s"),  # noqa: RUF001
        ("‘it’s fine’", "it’s fine"),  # noqa: RUF001
        ("“it’s ‘fine’ isn’t it”", "it’s 'fine' isn’t it"),  # noqa: RUF001
        ("“the dogs’ bone”", "the dogs’ bone"),  # noqa: RUF001
        ("“a\\nb”", "a\\nb"),
        ("“C:\\\\”", "C:\\\\"),
        ("‘\\’", "\\"),  # noqa: RUF001
    ],
)
def test_quotes_inside_of_a_quotation_are_straight(text: str, inside: str) -> None:
    assert quotation(f"x {text} y”’", 2) == (inside, 2 + len(text))  # noqa: RUF001


@pytest.mark.parametrize("text", ["“a b", "“a “b”", "““", "‘a b", "“"])  # noqa: RUF001
def test_a_quotation_may_be_left_open(text: str) -> None:
    assert quotation(text, 0) is None


@pytest.mark.parametrize(
    "text",
    ["‘rock ’n’ roll’", "”say ”hi” now”", "“" * 9, "“(" * 4_000 + "’ " * 1_000],  # noqa: RUF001
)
def test_where_quotes_may_belong_together_in_two_ways_nothing_is_guessed(text: str) -> None:
    with pytest.raises(UsageError, match="not clear"):
        quotation(text, 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{“type”: “job”, “queue”: 3}", {"type": "job", "queue": 3}),
        ("{„type“: „job“, ”queue”: 3}", {"type": "job", "queue": 3}),
        ('{"type": “job”}', {"type": "job"}),
        ("{“a”: “echo \\“hi\\” {}”}", {"a": 'echo "hi" {}'}),
        ('{“a”: “echo \\"hi\\"”}', {"a": 'echo "hi"'}),
        ("{“a”: “sh -c ‘echo “x  y”’”}", {"a": "sh -c 'echo \"x  y\"'"}),  # noqa: RUF001
        ("{“a”: “b\\n\\\\”}", {"a": "b\n\\"}),
        ('{"a": "the “best” run"}', {"a": "the “best” run"}),
        ('{"a": "a \\" “ b"}', {"a": 'a " “ b'}),
        ('{"a": "x\u200by\u00a0z"}', {"a": "x\u200by\u00a0z"}),
        ('\ufeff{\u00a0"a":\u200b\u202f1}\u200b\u00a0', {"a": 1}),
        ('\u200d{"a":\u200c1}\ufe0f', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ("> said before: it’s\n> {}\n{“a”: 1}", {"a": 1}),  # noqa: RUF001
    ],
)
def test_json_is_read_whatever_keyboards_made_of_its_quotes(text: str, value: object) -> None:
    assert is_json(text)
    assert json.loads(plain_json(text)) == value


@pytest.mark.parametrize("text", ["{“a”: “b}", "{“a”: ‘rock ’n’ roll’}"])  # noqa: RUF001
def test_json_in_quotes_that_are_not_clear_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        plain_json(text)
    assert "straight quotes" in str(refused.value.hint)


def test_json_that_is_longer_than_words_may_be_is_taken_as_it_is() -> None:
    text = "{“a”: 1" + " " * 10_000 + "}"
    assert plain_json(text) == text


@pytest.mark.parametrize("text", ['{"é“', '{“a”: "é\\', '{"é' + '\\"' * 4_000])
def test_json_with_an_open_string_in_straight_quotes_keeps_what_is_in_it(text: str) -> None:
    assert plain_json(text) == text.replace("“a”", '"a"')


def test_words_are_no_json() -> None:
    assert not is_json("> {\njobs")
    assert not is_json("submit -- echo {}")
