"""Commands are defined in INI, and take typed values that are words of their own."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kestrelctl.core.properties.command_definition import (
    CommandDefinition,
    read_commands,
    values_of,
)
from kestrelctl.core.properties.reading import PropertyValue
from kestrelctl.errors import UsageError

CLEAN = """
[clean-cache]
command = /usr/bin/clean "--older={days}" {path} now
parameters = days:int path:str
return_type = int
timeout = 60
"""


def clean() -> CommandDefinition:
    [found] = read_commands(CLEAN, "commands.ini")
    return found


def test_a_section_is_a_command() -> None:
    assert clean() == CommandDefinition(
        name="clean-cache",
        words=("/usr/bin/clean", "--older={days}", "{path}", "now"),
        parameters=(("days", "int"), ("path", "str")),
        return_type="int",
        timeout_seconds=60.0,
    )
    [short] = read_commands("[beep]\ncommand = /usr/bin/beep\n", "commands.ini")
    assert (short.parameters, short.return_type, short.timeout_seconds) == ((), "", 30.0)


def test_values_become_words() -> None:
    assert clean().filled({"days": 3, "path": "/a b; rm -r /"}) == (
        "/usr/bin/clean",
        "--older=3",
        "/a b; rm -r /",
        "now",
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"days": 3}, "path is missing"),
        ({"days": 3, "path": "x", "more": 1}, "takes no more"),
        ({"days": 3.0, "path": "x"}, "days must be of type int"),
        ({"days": True, "path": "x"}, "days must be of type int"),
        ({"days": 3, "path": "-rf"}, "does not take '-rf'"),
        ({"days": 3, "path": "a\nb"}, "path cannot be"),
        ({"days": 3, "path": ""}, "path cannot be"),
        ({"days": 3, "path": "x" * 1025}, "path cannot be"),
    ],
)
def test_other_values_are_refused(values: dict[str, PropertyValue], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        clean().filled(values)


def test_a_number_below_zero_is_no_option() -> None:
    [nice] = read_commands(
        "[nice]\ncommand = /usr/bin/renice {by}\nparameters = by:int\n", "commands.ini"
    )
    assert nice.filled({"by": -5}) == ("/usr/bin/renice", "-5")


def test_texts_become_values_of_the_types_that_are_wanted() -> None:
    parameters = (("n", "int"), ("x", "float"), ("on", "bool"), ("name", "str"))
    assert values_of("c", parameters, {"n": "3", "x": "3", "on": "yes", "name": "3"}) == {
        "n": 3,
        "x": 3.0,
        "on": True,
        "name": "3",
    }
    with pytest.raises(UsageError, match="n cannot be 'three'"):
        values_of("c", parameters, {"n": "three"})
    with pytest.raises(UsageError, match="takes no m"):
        values_of("c", parameters, {"m": "3"})
    with pytest.raises(UsageError, match="x is missing"):
        values_of("c", parameters, {"n": "3"})


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("command = touch x", "does not say where the program is"),
        ("command = ", "does not say where the program is"),
        ("command = /{program}\nparameters = program:str", "does not say where the program is"),
        ('command = /bin/echo "', "command cannot be read"),
        ("command = /bin/echo {x}", "{x} is no parameter"),
        ("command = /bin/echo\nparameters = x", "'x' is no parameter"),
        ("command = /bin/echo\nparameters = x:file", "'x:file' is no parameter"),
        ("command = /bin/echo\nparameters = x:int x:int", "'x:int' is no parameter"),
        ("command = /bin/echo\nreturn_type = text", "return_type is 'text'"),
        ("command = /bin/echo\ntimeout = 601", "timeout is '601'"),
        ("command = /bin/echo\nshell = yes", "there is no 'shell'"),
    ],
)
def test_a_mistake_is_told_with_its_place(lines: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_commands(f"[c]\n{lines}\n", "commands.ini")
    assert raised.value.message == "commands.ini: [c] is wrong"
    assert said in (raised.value.cause or "")


@given(st.text(max_size=200))
def test_whatever_stands_there_is_read_or_refused(text: str) -> None:
    with suppress(UsageError):
        read_commands(text, "commands.ini")


@given(st.dictionaries(st.sampled_from(["days", "path", "other"]), st.text(max_size=50)))
def test_no_value_becomes_an_option_or_more_words(texts: dict[str, str]) -> None:
    definition = clean()
    try:
        words = definition.filled(values_of("c", definition.parameters, texts))
    except UsageError:
        return
    assert len(words) == 4
    assert words[0] == "/usr/bin/clean"
    assert words[1].startswith("--older=")
    assert words[2] == texts["path"].strip()
