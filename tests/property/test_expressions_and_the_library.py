"""What is read here of an expression is what HTCondor's library reads, and a match comes to what
the library says of the whole ads: over generated expressions and ads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.evaluation import Ad, Answer, Expression, Failure, is_true
from kestrelctl.core.classad.rules import FUNCTIONS, checked
from kestrelctl.core.classad.syntax import MAX_DEPTH, MAX_SIGNS, Node, parse, references
from kestrelctl.core.model.worker.matching_ads import Attributes, in_lower_case
from kestrelctl.core.model.worker.significance import (
    Interest,
    Significance,
    attributes_of,
    interests,
)
from kestrelctl.core.scheduling.expression_answers import Side, comes_to
from kestrelctl.core.scheduling.judgement import clause_texts

# -- expressions -----------------------------------------------------------------------------------

_NUMBERS = ["0", "1", "2", "-1", "5", "2.5", ".5", "1e3", "0.0", "-0.5", "1.0", "9007199254740993"]
_TEXTS = ['"a"', '"A"', '"b"', '"é"', '"É"', '""', '"1"', r'"\141"', '"another"', '"true"']
_OTHERS = ["true", "false", "TRUE", "undefined", "error"]
_ATTRIBUTES = ["Speed", "MY.Speed", "TARGET.Speed", "'Speed'", "Fast", "Missing", "TARGET.fast"]
_SITES = ["Site", "TARGET.Site", "MY . Site", "'Site'"]
_IDENTITIES = ["Machine", "TARGET.Machine", "Owner", "MY.Owner"]
_PROPERTIES = ["Property_up", "TARGET.Property_up", "'property_UP'", "Property_none"]
_EQUALITIES = ["==", "!=", "=?=", "=!=", "is", "isnt", "ISNT", "Is"]
_ORDERS = ["<", "<=", ">", ">="]
_SIGNS = ["||", "&&", "|", "^", "&", *_EQUALITIES, *_ORDERS, "<<", ">>", ">>>", *"+-*/%"]

_constants = st.sampled_from([*_NUMBERS, *_TEXTS, *_OTHERS])
_values = st.one_of(_constants, st.sampled_from([*_ATTRIBUTES, *_SITES]))
#: With a space at each side or without: what a sign looks like may depend on its neighbour.
_spaces = st.sampled_from([" ", " ", " ", ""])


def _joined(left: str, space: str, sign: str, other: str, right: str) -> str:
    return f"{left}{space}{sign}{other}{right}"


def _lists(inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inside, max_size=3).map(lambda texts: f"{{{', '.join(texts)}}}")


_compared = st.one_of(
    st.tuples(
        st.sampled_from([*_PROPERTIES, *_SITES]),
        _spaces,
        st.sampled_from([*_EQUALITIES, *_ORDERS]),
        _spaces,
        st.one_of(_constants, _constants.map(lambda text: f"({text})")),
    ).map(lambda t: _joined(*t)),
    st.tuples(
        _constants, _spaces, st.sampled_from(_EQUALITIES), _spaces, st.sampled_from(_PROPERTIES)
    ).map(lambda t: _joined(*t)),
    st.tuples(
        st.sampled_from(_IDENTITIES), st.sampled_from(_EQUALITIES), st.sampled_from(_TEXTS)
    ).map(" ".join),
    st.tuples(
        st.sampled_from(["member", "identicalMember", "MEMBER"]),
        st.sampled_from([*_PROPERTIES, *_SITES, *_IDENTITIES, "Speed"]),
        _lists(_constants),
    ).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
    st.sampled_from(['member("A", Tags)', 'regexp("^a", TARGET.Site)', "isUndefined(Property_up)"]),
)


def _call(name: str, inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arguments = st.lists(st.one_of(inside, _lists(_constants)), max_size=3)
    return arguments.map(lambda texts: f"{name}({', '.join(texts)})")


_CALLED = [name for name in FUNCTIONS if not name.startswith("regexp")]


def _larger(inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Nothing is put in parentheses unless the draw says so: what binds more shows by that."""
    return st.one_of(
        st.tuples(inside, _spaces, st.sampled_from(_SIGNS), _spaces, inside).map(
            lambda t: _joined(*t)
        ),
        st.tuples(inside, st.sampled_from(["&&", "||"]), inside).map(" ".join),
        st.tuples(inside, _spaces, st.just("?:"), _spaces, inside).map(lambda t: _joined(*t)),
        st.tuples(inside, inside, inside).map(lambda t: f"{t[0]} ? {t[1]} : {t[2]}"),
        st.tuples(st.sampled_from("!-+~"), _spaces, inside).map("".join),
        inside.map(lambda text: f"({text})"),
        st.tuples(_lists(_constants), inside).map(lambda t: f"{t[0]}[{t[1]}]"),
        st.sampled_from(_CALLED).flatmap(lambda name: _call(name, inside)),
    )


_expressions = st.recursive(st.one_of(_compared, _compared, _values), _larger, max_leaves=8)

# -- ads -------------------------------------------------------------------------------------------

_a_text = st.sampled_from(["a", "A", "b", "c", "é", "É", "", "1", "true", "another"])
_a_number = st.one_of(
    st.sampled_from([0, 1, 2, 3, 5, -1, -7, 1000, (1 << 53) + 1, 0.0, 0.5, 1.0, 2.5, 2.6]),
    st.booleans(),
)
_ads = st.fixed_dictionaries(
    {},
    optional={
        "speed": st.one_of(_a_number, _a_text),
        "Fast": _a_number,
        "SITE": st.one_of(_a_text, _a_text, _a_number),
        "Machine": _a_text,
        "Owner": _a_text,
        "Property_up": st.one_of(_a_number, _a_number, _a_text),
        "Tags": st.lists(st.sampled_from(["A", "B"]), max_size=2),
    },
)

# -- what is compared ------------------------------------------------------------------------------


def accepted(check: Callable[[str], object], text: str) -> bool:
    try:
        check(text)
    except BadExpression:
        return False
    return True


def in_parentheses(node: Node, text: str) -> str:
    """An expression with all the parentheses that its structure allows, as it is read here."""
    parts = [in_parentheses(part, text) for part in node.parts]
    if node.kind in ("value", "attribute", "list"):  # of constants alone
        return text[node.start : node.end]
    if node.kind == "call":
        name = text[node.start : node.end].partition("(")[0]
        return f"{name}({', '.join(parts)})"
    if node.kind == "group":
        return f"({parts[0]})"
    if node.kind == "part":
        return f"({parts[0]})[{parts[1]}]"
    if node.kind == "?":
        return f"(({parts[0]}) ? ({parts[1]}) : ({parts[2]}))"
    if len(parts) == 1:
        return f"({node.kind} ({parts[0]}))"
    return f"(({parts[0]}) {node.kind} ({parts[1]}))"


def scoped(text: str, mine: Attributes) -> str:
    """An expression whose names say in whose ad they are looked up: as HTCondor does it, in one's
    own, and in the other's if one's own has no such attribute.
    """
    own = {name.lower() for name in mine}
    for node in reversed(references(parse(text))):
        if not node.scope:
            scope = "MY" if node.name in own else "TARGET"
            text = f"{text[: node.start]} {scope}.{text[node.start :]}"
    return text


def told(answer: Answer) -> tuple[str, str]:
    """An answer as it is compared: 1, 1.0 and true are three, and what fails fails alike."""
    if isinstance(answer, Failure):
        return "fails", ""
    return type(answer).__name__, repr(answer)


def side(attributes: Attributes) -> Side:
    return Side(in_lower_case(attributes))


@example("Rack ?: 0 < 3 && Memory > 5", {"speed": 1}, {})
@example("!Fast ?: Speed ?: -1 + 2", {"Fast": 0}, {"speed": 2})
@given(_expressions, _ads, _ads)
@settings(max_examples=200, deadline=None)
def test_an_expression_has_the_structure_that_the_library_reads(
    text: str, mine: Attributes, target: Attributes
) -> None:
    if not accepted(checked, text):
        return
    whole = Expression(text).evaluate(Ad(mine), Ad(target))
    spelled_out = in_parentheses(parse(text), text)
    assert told(Expression(spelled_out).evaluate(Ad(mine), Ad(target))) == told(whole)


@example("Site is'Speed'", {"SITE": "a", "speed": "a"}, {})
@given(_expressions, _ads, _ads)
@settings(max_examples=200, deadline=None)
def test_an_expression_asks_for_the_attributes_that_the_library_looks_up(
    text: str, mine: Attributes, target: Attributes
) -> None:
    if not accepted(checked, text):
        return
    by_the_library = Expression(scoped(text, mine)).evaluate(Ad(mine), Ad(target))
    assert told(comes_to(text, side(mine), side(target))) == told(by_the_library)


@given(_expressions, _ads, _ads)
@settings(max_examples=200, deadline=None)
def test_an_expression_is_true_if_all_its_clauses_are(
    text: str, mine: Attributes, target: Attributes
) -> None:
    if not accepted(checked, text):
        return
    ours, theirs = side(mine), side(target)
    clauses = [comes_to(clause, ours, theirs) for clause in clause_texts(text)]
    assert all(map(is_true, clauses)) == is_true(comes_to(text, ours, theirs))


@example("Property_up == true", [], {}, {"Property_up": 1})
@example("Property_up == true", ["Property_up == 1"], {}, {"Property_up": 1})
@example("Property_up < true", [], {}, {"Property_up": 5})
@example("Property_up == false", [], {}, {"Property_up": -5})
@given(_expressions, st.lists(_expressions, max_size=2), _ads, _ads)
@settings(max_examples=300, deadline=None)
def test_what_others_ask_changes_no_answer(
    text: str, others: list[str], mine: Attributes, target: Attributes
) -> None:
    """An ad with one value in place of all that are alike to the expressions in force."""
    if not accepted(interests, text):
        return
    asked = interests(text)
    told_of = [interests(other) for other in others if accepted(interests, other)]
    ours = alike(mine, [asked.mine, *(each.mine for each in told_of)])
    theirs = alike(target, [asked.others, *(each.others for each in told_of)])
    exactly = comes_to(text, side(mine), side(target))
    assert told(comes_to(text, side(ours), side(theirs))) == told(exactly)


def alike(attributes: Attributes, asked: list[Interest]) -> Attributes:
    """What a class or a shape knows of an ad."""
    significance = Significance(attributes)
    for interest in asked:
        significance.learn(interest)
    return attributes_of(significance.of(attributes))


def chain(sign: str, signs: int) -> str:
    return sign.join(["Fast"] * (signs + 1))


_CHAINS: list[Callable[[int], str]] = [
    *(partial(chain, sign) for sign in ("||", "&&", "+", "?:", "==")),
    lambda signs: "!" * signs + "Fast",
    lambda signs: "(" * (MAX_DEPTH - 1) + chain("+", signs - MAX_DEPTH + 1) + ")" * (MAX_DEPTH - 1),
    lambda signs: "Missing?:(" * 49 + "!" * (signs - 2 * 49) + "Fast" + ")" * 49,
]


@pytest.mark.parametrize("text", _CHAINS)
def test_as_many_signs_as_may_follow_each_other_have_a_value(text: Callable[[int], str]) -> None:
    longest = text(MAX_SIGNS)
    assert interests(longest)
    assert clause_texts(longest)
    found = Expression(longest).evaluate(Ad({"Fast": 1}), Ad({}))
    assert not isinstance(found, Failure)


@pytest.mark.parametrize("text", _CHAINS[:6])
def test_more_signs_are_refused_where_that_is(text: Callable[[int], str]) -> None:
    assert not accepted(parse, text(MAX_SIGNS + 1))
