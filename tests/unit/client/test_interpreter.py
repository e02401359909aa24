"""An interpreter at the end of a channel: each call runs once, and its result waits to be taken."""

from __future__ import annotations

import operator
import os
import pickle
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from kestrelctl.client.frames import Messages, first_frame, frames_of
from kestrelctl.client.interpreter import BOOTSTRAP, PICKLED, RAISED, VALUE

KEY = secrets.token_bytes(32)


class Owner:
    """The owner of an interpreter that runs in a directory, as a worker would connect them."""

    def __init__(self, directory: Path, **wishes: Any) -> None:
        self._messages = Messages(KEY)
        self._number = 0
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(directory / "kestrel-channel"))
        listening.listen()
        (directory / "token").touch()
        self._process = subprocess.Popen(
            [sys.executable, "-c", BOOTSTRAP],
            env={"KESTREL_SCRATCH": str(directory), "PATH": "/bin:/usr/bin"},
            cwd=directory,
        )
        self._channel, _ = listening.accept()
        listening.close()
        usual = {
            "key": KEY.hex(), "call_seconds": None, "idle_seconds": 60.0, "prints": False,
            "python": list(sys.version_info[:2]), "directory": str(directory), "token": "token",
            "cloudpickle": Path(cloudpickle.cloudpickle.__file__).read_text(), "path": [],
        }  # fmt: skip
        self._send(first_frame(usual | wishes))
        self.greeting = self.hears()

    def _send(self, frame: bytes) -> None:
        self._channel.sendall(len(frame).to_bytes(4, "big") + frame)

    def says(self, op: str, blobs: list[bytes] | None = None, **header: Any) -> None:
        self._number += 1
        for frame in frames_of(self._number, {"op": op, **header}, blobs or []):
            self._send(frame)

    def calls(self, function: Any, *numbers: int, **header: Any) -> None:
        """Has a function called with each number, which is the call's id as well."""
        self.says("function", [cloudpickle.dumps(function)], function="f")
        blobs = [pickle.dumps(((number,), {})) for number in numbers]
        self.says("calls", blobs, function="f", ids=list(numbers), files=[""] * len(numbers))

    def _reads(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self._channel.recv(size - len(found))
            assert part, "the interpreter has ended"
            found += part
        return found

    def hears(self) -> tuple[dict[str, Any], list[bytes]]:
        while True:
            size = int.from_bytes(self._reads(4), "big")
            message = self._messages.take(self._reads(size))
            if message is not None:
                return message

    def results(self, count: int) -> dict[int, tuple[dict[str, Any], bytes]]:
        found: dict[int, tuple[dict[str, Any], bytes]] = {}
        while len(found) < count:
            header, blobs = self.hears()
            assert header["op"] == "results"
            for entry, blob in zip(header["results"], blobs, strict=True):
                found[entry["id"]] = entry, blob
        return found

    def ends(self) -> int:
        return self._process.wait(30)

    def close(self) -> None:
        self._channel.close()
        self._process.wait(30)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    found = Owner(tmp_path)
    yield found
    found.close()


def test_it_greets_and_tells_how_calls_end(owner: Owner) -> None:
    header, _ = owner.greeting
    assert header["op"] == "hello"
    assert header["python"] == list(sys.version_info[:3])
    owner.calls(lambda n: [0, (1,), None][n] if n < 3 else 1 // 0, 0, 1, 2, 3)
    found = owner.results(4)
    assert (found[0][0]["kind"], found[0][0]["value"]) == (VALUE, 0)
    assert found[1][0]["kind"] == PICKLED
    assert pickle.loads(found[1][1]) == (1,)
    assert (found[2][0]["kind"], found[2][0]["value"]) == (VALUE, None)
    assert (found[3][0]["kind"], found[3][0]["type"]) == (RAISED, "ZeroDivisionError")
    owner.calls(operator.index, 5)
    assert owner.results(1)[5][0]["value"] == 5


def test_a_call_that_is_said_twice_runs_once(owner: Owner, tmp_path: Path) -> None:
    marks = tmp_path / "marks"

    def work(number: int) -> int:
        with open(marks, "a") as file:
            file.write(f"{number}\n")
        return number

    owner.calls(work, 1, 2)
    owner.calls(work, 2, 1, 3)
    owner.results(3)
    owner.calls(work, 1)
    owner.says("sync", ids=[1, 2, 99])
    header, _ = owner.hears()
    assert (header["op"], header["ids"]) == ("missing", [99])
    assert sorted(owner.results(2)) == [1, 2], "they are said again, as nobody took them"
    assert marks.read_text().split() == ["1", "2", "3"]
    owner.says("ack", ack=[1, 2, 3])
    owner.says("sync", ids=[1])
    header, _ = owner.hears()
    assert (header["op"], header["ids"]) == ("missing", [1])


def test_calls_that_have_not_begun_are_given_back(owner: Owner, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    owner.calls(lambda n: gate.read_text(), 1, 2, 3)
    owner.says("return", ids=[2, 3, 4])
    header, _ = owner.hears()
    assert (header["op"], header["ids"]) == ("returned", [2, 3])
    gate.write_text("open")
    assert owner.results(1)[1][0]["value"] == "open"


def test_what_is_large_goes_by_file_and_a_function_gets_what_is_shared(owner: Owner) -> None:
    owner.says("share", [cloudpickle.dumps({"a": 1})], share=4, file="")

    def work(number: int) -> object:
        from kestrelctl.client.interpreter import shared

        return shared(4)["a"] if number else b"x" * 1_000_000

    owner.calls(work, 0, 1)
    found = owner.results(2)
    assert found[1][0]["value"] == 1
    entry, blob = found[0]
    assert blob == b""
    assert "file" in entry


def test_it_ends_when_it_is_told_and_when_nobody_calls(owner: Owner, tmp_path: Path) -> None:
    owner.says("end")
    assert owner.hears()[0]["op"] == "bye"
    assert owner.ends() == 0
    (tmp_path / "other").mkdir()
    idle = Owner(tmp_path / "other", idle_seconds=0.01)
    assert idle.hears()[0]["op"] == "bye"
    assert idle.ends() == 0
    idle.close()


def test_a_call_over_its_time_is_told_and_ends_it_and_the_others_are_given_back(
    tmp_path: Path,
) -> None:
    owner = Owner(tmp_path, call_seconds=0.2)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    owner.calls(lambda n: gate.read_text(), 1, 2)
    (entry, _) = owner.results(1)[1]
    assert (entry["kind"], entry["type"]) == (RAISED, "TimeoutError")
    header, _ = owner.hears()
    assert (header["op"], header["ids"]) == ("returned", [2])
    assert owner.ends() == 75
    owner.close()


def test_another_version_of_python_loads_no_function(tmp_path: Path) -> None:
    owner = Owner(tmp_path, python=[3, 99])
    assert owner.greeting[0]["python"] == list(sys.version_info[:3])
    assert owner.ends() == 0
    owner.close()
