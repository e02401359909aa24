"""Definitions of properties are read as they are written, and errors say what is wrong where."""

from __future__ import annotations

import pytest

from kestrelctl.core.properties.definition import (
    MOST_PROPERTIES,
    PropertyDefinition,
    read_definitions,
)
from kestrelctl.errors import UsageError

RAM_FREE = """
[ram_free]
command = ram
parameters = MemFree
return_type = int
ticks = 60
"""


def test_free_memory_is_defined_by_four_lines() -> None:
    assert read_definitions(RAM_FREE, "ram.ini") == [
        PropertyDefinition(
            name="ram_free",
            words=("ram", "MemFree"),
            return_type="int",
            tick_seconds=60,
            timeout_seconds=10,
        )
    ]


def test_parameters_are_parted_as_a_shell_would() -> None:
    text = RAM_FREE.replace("MemFree", "-x 'two words' $HOME")
    assert read_definitions(text, "f")[0].words == ("ram", "-x", "two words", "$HOME")


def test_a_reading_may_take_no_longer_than_a_tick_unless_it_says_so() -> None:
    short = RAM_FREE.replace("60", "3")
    assert read_definitions(short, "f")[0].timeout_seconds == 3
    assert read_definitions(short + "timeout = 20\n", "f")[0].timeout_seconds == 20


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (RAM_FREE.replace("ram_free", "Ram-Free"), "cannot be a property's name"),
        (RAM_FREE.replace("ram_free", "r" * 65), "cannot be a property's name"),
        (RAM_FREE.replace("command = ram", "command ="), "command is missing"),
        (RAM_FREE.replace("= int", "= list"), "return_type is 'list'"),
        (RAM_FREE.replace("return_type = int", ""), "return_type is missing"),
        (RAM_FREE.replace("60", "0"), "ticks is '0'"),
        (RAM_FREE.replace("60", "nan"), "ticks is 'nan'"),
        (RAM_FREE.replace("60", "86401"), "ticks is '86401'"),
        (
            RAM_FREE.replace("MemFree", "'MemFree"),
            "parameters cannot be read",
        ),
        (RAM_FREE.replace("MemFree", "Mem\0Free"), "cannot be printed"),
        (RAM_FREE + "tick = 3\n", "there is no 'tick'"),
    ],
)
def test_what_is_wrong_is_told_with_file_section_cause_and_hint(text: str, cause: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_definitions(text, "ram.ini")
    assert caught.value.message.startswith("ram.ini: [")
    assert cause in (caught.value.cause or "")
    assert caught.value.hint


@pytest.mark.parametrize("text", ["command = ram", RAM_FREE + RAM_FREE, "[a]\n[", "[a]\nb"])
def test_what_is_not_ini_is_told_with_the_file(text: str) -> None:
    with pytest.raises(UsageError, match=r"ram\.ini cannot be read") as caught:
        read_definitions(text, "ram.ini")
    assert caught.value.cause
    assert caught.value.hint


def test_a_file_defines_no_more_properties_than_a_worker_may_have() -> None:
    def many(count: int) -> str:
        return "".join(RAM_FREE.replace("ram_free", f"p{n}") for n in range(count))

    assert len(read_definitions(many(MOST_PROPERTIES), "f")) == MOST_PROPERTIES
    with pytest.raises(UsageError, match="f has too many sections") as refused:
        read_definitions(many(MOST_PROPERTIES + 1), "f")
    assert refused.value.cause == f"it has {MOST_PROPERTIES + 1}, and may have {MOST_PROPERTIES}"
