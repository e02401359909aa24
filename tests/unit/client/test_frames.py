"""The words of an executor and its interpreters: what is read, and what is not."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kestrelctl.client import interpreter
from kestrelctl.client.frames import Forged, Messages, first_frame, frames_of, opened

KEY = b"k" * 32
BLOB = os.urandom(500_000)


def sealed(header: dict[str, Any], blobs: list[bytes], key: bytes = KEY) -> list[bytes]:
    """The frames in which an interpreter says something."""
    text = json.dumps(header | {"sizes": [len(blob) for blob in blobs]}).encode()
    body = len(text).to_bytes(4, "big") + text + b"".join(blobs)
    body = hmac.new(key, body, "sha256").digest() + body
    size = interpreter.MOST_CHUNK_BYTES
    parts = [body[first : first + size] for first in range(0, len(body), size)]
    return [
        b"M" + (9).to_bytes(8, "big") + place.to_bytes(4, "big")
        + (b"1" if place == len(parts) - 1 else b"0") + part
        for place, part in enumerate(parts)
    ]  # fmt: skip


def taken(frames: list[bytes]) -> list[tuple[dict[str, Any], list[bytes]]]:
    messages = Messages(KEY)
    return [found for found in map(messages.take, frames) if found is not None]


def test_a_message_of_many_frames_is_put_together() -> None:
    frames = sealed({"op": "results"}, [b"one", BLOB])
    assert len(frames) == 3
    [(header, blobs)] = taken(frames)
    assert header["op"] == "results"
    assert blobs == [b"one", BLOB]


@pytest.mark.parametrize("lost", range(3))
def test_nothing_counts_of_a_message_that_misses_a_frame(lost: int) -> None:
    frames = sealed({"op": "results"}, [BLOB])
    assert taken(frames[:lost] + frames[lost + 1 :]) == []
    again = frames[:lost] + frames[lost + 1 :] + frames
    assert len(taken(again)) == 1


def test_a_message_with_the_seal_of_another_key_is_not_read() -> None:
    with pytest.raises(Forged, match="seal is wrong"):
        taken(sealed({"op": "results"}, [b"a pickle"], key=b"x" * 32))
    [frame] = sealed({"op": "results"}, [b"a pickle"])
    with pytest.raises(Forged):
        taken([frame[:-1] + b"!"])


@given(st.binary(max_size=300))
def test_rubbish_is_forged_or_nothing(frame: bytes) -> None:
    with contextlib.suppress(Forged):
        assert Messages(KEY).take(frame) is None
    with pytest.raises(Forged):
        opened(KEY, frame)


def test_what_an_executor_says_is_what_an_interpreter_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    header = {"op": "calls", "ids": [1]}
    frames = [*frames_of(1, header, [b"one", BLOB])]
    parts = [frame[14:] for frame in frames]
    assert [frame[13:14] for frame in frames] == [b"0", b"0", b"1"]
    body = b"".join(parts)
    size = int.from_bytes(body[:4], "big")
    assert json.loads(body[4 : 4 + size])["sizes"] == [3, len(BLOB)]
    assert body[4 + size :] == b"one" + BLOB


def test_interpreters_are_made_of_what_the_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package may be replaced by another version, or be away for a moment, meanwhile."""
    before = first_frame({})
    monkeypatch.setattr(interpreter, "__file__", "/nowhere/interpreter.py")
    assert first_frame({}) == before


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(plain | st.tuples(plain) | st.binary() | st.dictionaries(st.integers(), plain))
def test_a_plain_value_is_the_same_after_json_and_of_the_same_types(value: Any) -> None:
    if interpreter.is_plain(value):
        again = json.loads(json.dumps(value))
        assert again == value
        assert repr(again) == repr(value)


@pytest.mark.parametrize("value", [(1,), b"x", {1: 2}, 1 << 64, [[[[1]]]], {"a": (1,)}, object()])
def test_what_json_would_change_is_not_plain(value: object) -> None:
    assert not interpreter.is_plain(value)
