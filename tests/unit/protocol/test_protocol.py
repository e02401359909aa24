"""The documented messages are those that the programs speak."""

from __future__ import annotations

import json
import re
import typing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kestrelctl.core.model.result import Result
from kestrelctl.protocol import (
    answers,
    channels,
    codec,
    commands,
    directions,
    pools,
    properties,
    requests,
    workers,
)
from kestrelctl.protocol.chat import profile

DOCUMENT = Path(__file__).parents[3] / "docs" / "protocol.md"
DIRECTIONS = {
    "Worker to pool": (
        directions.from_worker,
        workers.FromWorker
        | workers.EnvironmentsHere
        | properties.PropertiesHere
        | commands.CommandsHere
        | commands.CommandDone
        | channels.FromTask,
    ),
    "Pool to worker": (
        directions.to_worker,
        workers.ToWorker
        | workers.ToHost
        | commands.RunCommand
        | commands.ReadProperties
        | channels.ToTask,
    ),
    "Simple worker to pool": (directions.from_worker, profile.FromProfileWorker),
    "Pool to simple worker": (directions.to_profile_worker, profile.ToProfileWorker),
    "Joining machine to pool": (directions.from_joiner, workers.Join),
    "Pool to joining machine": (directions.to_joiner, workers.ToJoiner),
    "Pool to pool: the overlay": (directions.flock, pools.OverlayMessage),
    "Pool to pool: lending": (directions.flock, pools.LendingMessage),
    "User to pool": (directions.requests, requests.AnyRequest),
    "Pool to user": (directions.answers, answers.AnyAnswer),
}


def sections() -> dict[str, list[str]]:
    """The JSON examples of each section of the document."""
    parts = re.split(r"^## (.*)$", DOCUMENT.read_text(), flags=re.MULTILINE)[1:]
    return {
        title: re.findall(r"```json\n(.*?)\n```", text, re.DOTALL)
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    }


EXAMPLES = [(title, example) for title, found in sections().items() for example in found]


@pytest.mark.parametrize(("direction", "example"), EXAMPLES)
def test_every_documented_example_is_what_the_programs_say(direction: str, example: str) -> None:
    """Field by field; that the bytes are the same would only say how Python writes numbers."""
    decoder, _ = DIRECTIONS[direction]
    message = decoder.decode(example)
    assert json.loads(codec.encode(message)) == json.loads(example)
    assert decoder.decode(codec.encode(message)) == message


def test_what_succeeded_in_silence_is_told_in_few_bytes_and_no_text_is_changed_for_that() -> None:
    silent = Result(7, 1, 2, 0, 1795190000.25, 0.5, 0.0, 0.25, 9_437_184)
    spiteful = Result(8, 1, 2, 1, 0.0, 0.0, reason=workers.SILENT_END.decode(), stderr=b"x")
    text = codec.encode(workers.Report(results=[silent, spiteful]))
    assert "[7,1,2,0,1795190000.25,0.5,0.0,0.25,9437184]" in text
    assert directions.from_worker.decode(text) == workers.Report(results=[silent, spiteful])


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_message_type_is_documented(direction: str) -> None:
    _, union = DIRECTIONS[direction]
    known = {kind.__struct_config__.tag for kind in typing.get_args(union) or (union,)}
    shown = {json.loads(example)["type"] for example in sections()[direction]}
    assert shown == known


def test_pools_of_a_flock_say_nothing_else_to_each_other() -> None:
    unions = [union for title, (_, union) in DIRECTIONS.items() if title.startswith("Pool to pool")]
    shown = {kind for union in unions for kind in typing.get_args(union)}
    assert shown == set(typing.get_args(pools.FlockMessage))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ("{", "truncated"),
        ("[]", "array"),
        ('{"type": "beet"}', "beet"),
        ("{}", "type"),
        ('{"type": "returned", "numbers": "all"}', "numbers"),
        ('{"type": "returned", "numbers": [1.5]}', "numbers"),
        ('{"type": "report", "results": [[1, 2]]}', "results"),
        ('{"type": "heartbeat", "x": "' + "y" * codec.MAX_PAYLOAD_BYTES + '"}', "limit"),
        ("[" * 100_000, "array"),
        ('{"type": "heartbeat", "x": ' + "[" * 100_000, "it nests too deeply"),
    ],
)
def test_rubbish_is_refused_with_the_reason(payload: str, why: str) -> None:
    with pytest.raises(codec.BadMessage, match=re.escape(why)):
        directions.from_worker.decode(payload)


@given(st.text() | st.binary())
def test_no_payload_raises_anything_else(payload: str | bytes) -> None:
    for decoder, _ in DIRECTIONS.values():
        try:
            decoder.decode(payload)
        except codec.BadMessage:
            continue
        raise AssertionError("random text was taken for a message")


@pytest.mark.parametrize("kind", [commands.CommandName, properties.Name, pools.ClassId])
def test_a_line_feed_is_no_part_of_a_name(kind: object) -> None:
    decoder = msgspec.json.Decoder(kind)
    assert decoder.decode('"abcdefabcdef"') == "abcdefabcdef"
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(r'"abcdefabcdef\n"')


def test_unknown_fields_are_ignored() -> None:
    assert (
        directions.from_worker.decode('{"type": "heartbeat", "mood": "fine"}')
        == workers.Heartbeat()
    )


def test_the_id_of_a_refused_payload_can_still_be_told() -> None:
    assert codec.id_in('{"type": "dance", "id": "7"}') == "7"
    assert codec.id_in("no json") == ""
    assert codec.id_in('{"id": 7}') == ""


def test_the_whole_numbers_of_a_request_are_ones_that_the_store_can_look_for() -> None:
    """What is deeper inside, such as a job's description, has checks of its own."""
    bounds = {
        f"{kind.__name__}.{field.name}": bounds_of(msgspec.inspect.type_info(field.type))
        for kind in typing.get_args(requests.AnyRequest)
        for field in msgspec.structs.fields(kind)
    }
    assert {"Logs.task_id", "ListJobs.limit"} <= {name for name, found in bounds.items() if found}
    assert [name for name, found in bounds.items() if not all(map(all, found))] == []


def bounds_of(field: msgspec.inspect.Type) -> list[tuple[bool, bool]]:
    """Whether each whole number of this field has a lower and an upper bound."""
    match field:
        case msgspec.inspect.IntType(ge=ge, gt=gt, le=le, lt=lt):
            return [(ge is not None or gt is not None, le is not None or lt is not None)]
        case msgspec.inspect.UnionType(types=types):
            return [bounds for kind in types for bounds in bounds_of(kind)]
        case msgspec.inspect.ListType(item_type=item):
            return bounds_of(item)
        case _:
            return []
