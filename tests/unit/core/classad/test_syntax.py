"""ClassAd expressions as text: what is one, what it refers to, and where a mistake is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.evaluation import Ad, Attribute, Expression, Failure, Unknown
from kestrelctl.core.classad.syntax import MAX_DEPTH, MAX_SIGNS, calls, clauses, parse, references


def names(text: str) -> list[tuple[str, str]]:
    return [(node.scope, node.name) for node in references(parse(text))]


def test_names_of_attributes_are_found_in_any_case() -> None:
    assert names('MY.Memory > TARGET.RequestMemory && Arch == "X86_64"') == [
        ("my", "memory"),
        ("target", "requestmemory"),
        ("", "arch"),
    ]


def test_words_that_are_values_or_functions_are_no_attributes() -> None:
    assert names("ifThenElse(true, undefined, ERROR) =?= size({1, 2.5e3, .5})") == []
    found = calls(parse("ifThenElse(isUndefined(A), 1, Max({1}))"))
    assert [node.name for node in found] == ["ifthenelse", "isundefined", "max"]


def test_clauses_are_what_all_must_be_true() -> None:
    text = "(Cpus > 2 && (Memory > 1 || Big)) && !Slow"
    assert [text[c.start : c.end] for c in clauses(parse(text))] == [
        "Cpus > 2",
        "(Memory > 1 || Big)",
        "!Slow",
    ]
    text = "Fast && Slow ? A : B"
    assert [text[c.start : c.end] for c in clauses(parse(text))] == [text]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Rack ?: 0 < 3 && Memory > 5", ["Rack ?: 0 < 3", "Memory > 5"]),
        ("Fast && Slow ?: B", ["Fast", "Slow ?: B"]),
        ("Rack ?: Row ?: -1 && Fast", ["Rack ?: Row ?: -1", "Fast"]),
        ("Fast && Rack ?: -1[0]", ["Fast", "Rack ?: -1[0]"]),
    ],
)
def test_the_sign_for_the_first_that_is_defined_binds_most(text: str, parts: list[str]) -> None:
    assert [text[c.start : c.end] for c in clauses(parse(text))] == parts


def test_of_several_of_these_signs_the_last_is_read_first() -> None:
    first = parse("A ?: B ?: C")
    assert [part.kind for part in first.parts] == ["attribute", "?:"]
    assert parse("!A ?: B").kind == "!"


@pytest.mark.parametrize(
    ("text", "position", "what"),
    [
        (r"'\101' == 1", 0, r"no attribute has the name '\101'"),
        ("1 + '\u212a'", 4, "no attribute has the name '\u212a'"),
        ('Site == "a\0b"', 10, "a text holds no NUL character"),
    ],
)
def test_what_the_library_reads_otherwise_is_refused_where_that_is(
    text: str, position: int, what: str
) -> None:
    with pytest.raises(BadExpression) as refused:
        parse(text)
    assert (refused.value.position, refused.value.what) == (position, what)


@pytest.mark.parametrize(
    ("text", "position", "what"),
    [
        ("", 0, "a value is expected, not the end"),
        ("1 +", 3, "a value is expected, not the end"),
        ("Cpus > > 2", 7, "a value is expected, not '>'"),
        ("Cpus 2", 5, "an operator is expected, not '2'"),
        ("(Cpus > 2", 9, "')' for the '(' before is expected, not the end"),
        ('Arch == "X86', 8, 'the " is never closed'),
        ("a ? b", 5, "':' of the '?' before is expected, not the end"),
        ("Memory > 12Q", 9, "no number is written so"),
        ("Memory @ 2", 7, "'@' is no part of the language"),
        ("MY. > 2", 4, "the name of an attribute is expected, not '>'"),
        ("quantize(1, {2)", 14, "'}' for the '{' before is expected, not ')'"),
    ],
)
def test_a_mistake_has_a_place(text: str, position: int, what: str) -> None:
    with pytest.raises(BadExpression) as refused:
        parse(text)
    assert (refused.value.position, refused.value.what) == (position, what)


def test_depth_and_length_are_bounded() -> None:
    parse("(" * (MAX_DEPTH - 1) + "1" + ")" * (MAX_DEPTH - 1))
    parse("!" * MAX_SIGNS + "a")
    for text in (
        "(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH,
        "a" * 4_001,
        "[" * 4_000,
        "!" * 301 + "a",
    ):
        with pytest.raises(BadExpression):
            parse(text)


_leaf = st.sampled_from(["1", "2.5", '"a"', "Cpus", "MY.Memory", "TARGET.X", "true", "undefined"])


def _larger(inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(
        "|| && | ^ & == != =?= =!= is isnt < <= > >= << >> >>> + - * / %".split()  # noqa: SIM905
    )
    return st.one_of(
        st.tuples(inside, signs, inside).map(" ".join),
        st.tuples(inside, inside, inside).map(lambda t: f"{t[0]} ? {t[1]} : {t[2]}"),
        inside.map(lambda text: f"({text})"),
        inside.map(lambda text: f"!({text})"),
        inside.map(lambda text: f"strcat({text}, {{{text}}}[0])"),
        inside.map(lambda text: f"[a = {text}; b = 2].a"),
    )


@given(st.recursive(_leaf, _larger, max_leaves=8))
def test_what_the_library_reads_is_read_here(text: str) -> None:
    Expression(text)


@pytest.mark.parametrize("text", [r'"\0"', r'"a\00b"', r"'\000'", r'"\08"', r'x + "\101\0"'])
def test_a_text_with_a_nul_character_is_refused_where_that_is(text: str) -> None:
    with pytest.raises(BadExpression, match="a text holds no NUL character") as refused:
        parse(text)
    assert refused.value.position == text.index(r"\0")


@pytest.mark.parametrize("text", [r'"\01"', r'"\001"', r'"\\0"', r'"\400"'])
def test_a_text_with_other_escapes_is_read(text: str) -> None:
    parse(text)
    Expression(text)


@given(st.text(alphabet="aA1.0\"'\\ ()[]{}<>=!?:&|,;+-*/%eEkx_", max_size=12))
def test_what_is_read_here_the_library_reads(text: str) -> None:
    try:
        parse(text)
    except BadExpression:
        return
    Expression(text)


_SIGNS = ". ( ) { } [ ] ? : ?: - ! ~ * == is isnt && , =".split()  # noqa: SIM905
_VALUES = ["a", "MY", "f", "1", ".5", "1e3", "true", "undefined", "error", '"s"', "'q'", r'"\303"']
_SPACES = [" ", "\t", "\n", "\v", "\f", "\r", "\x1c", "\x85", "\xa0", "\u2003"]
_word = st.sampled_from([*_SIGNS, *_VALUES, *_SPACES])


@given(st.lists(_word, max_size=6).map("".join))
@settings(max_examples=500)
def test_words_in_any_order_that_are_read_here_the_library_reads(text: str) -> None:
    try:
        parse(text)
    except BadExpression:
        return
    Expression(text)


@pytest.mark.parametrize(
    ("text", "position", "what"),
    [
        ("X ?: !Y", 5, "the '!' after '?:' needs parentheses: ?: (!X)"),
        ("X ?: -Y", 5, "the '-' after '?:' needs parentheses: ?: (-X)"),
        ("X ?: - 1", 5, "the '-' after '?:' needs parentheses: ?: (-X)"),
        ("Cpus\xa0> 2", 4, r"'\xa0' is a space that the language does not have: write a plain one"),
        ("MY.true", 3, "the name of an attribute is expected, not 'true'"),
        ("error()", 5, "an operator is expected, not '('"),
    ],
)
def test_what_the_library_does_not_read_is_refused_where_that_is(
    text: str, position: int, what: str
) -> None:
    with pytest.raises(BadExpression) as refused:
        parse(text)
    assert (refused.value.position, refused.value.what) == (position, what)
    for fine in ("X ?: (!Y)", "X ?: -1", "X ?:-.5 + Y"):
        parse(fine)
        Expression(fine)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r'"\303"', "it comes to a text that is no UTF-8"),
        ("substr(Site, 0, 2)", "it comes to a text that is no UTF-8"),
        (r'{"\303"}', "HTCondor's library does not evaluate it"),
        ("Large", "HTCondor's library does not evaluate it"),
    ],
)
def test_what_the_library_raises_is_a_value(text: str, words: str) -> None:
    site: dict[str, Attribute] = {"Site": "München"} if "Large" not in text else {"Large": 1 << 70}
    for found in (Expression(text).evaluate(Ad(site)), Expression(text).evaluate(Ad(site), None)):
        assert isinstance(found, Failure)
        assert found.words.startswith(words)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("quantize(TARGET.RequestMemory, {128})", 128),
        ("MY.Memory >= TARGET.RequestMemory", True),
        ("Memory / 3.0 > 300", True),
        ("Missing > 3", Unknown.UNDEFINED),
        ("1 / 0", Unknown.ERROR),
        ('"a" + 1', Unknown.ERROR),
        ("nosuch(3)", Unknown.ERROR),
        ("Missing =?= undefined", True),
        ('member("a", Tags)', True),
        ('member("c", Tags)', False),
        ("2", 2),
        ("1", 1),
    ],
)
def test_what_expressions_come_to(text: str, value: object) -> None:
    worker, job = Ad({"Memory": 1024, "Tags": ["a", "b"]}), Ad({"RequestMemory": 100})
    found = Expression(text).evaluate(worker, job)
    assert (found, type(found)) == (value, type(value))


def test_an_attribute_that_refers_to_itself_is_undefined() -> None:
    assert Expression("A").evaluate(Ad({"B": 1})) is Unknown.UNDEFINED
