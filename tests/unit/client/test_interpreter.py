"""An interpreter at the end of a channel: each call runs once, and its result waits to be taken."""

from __future__ import annotations

import hashlib
import operator
import os
import pickle
import secrets
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from kestrelctl.client.frames import Messages, first_frame, frames_of
from kestrelctl.client.interpreter import BOOTSTRAP, BROKEN, PICKLED, RAISED, VALUE
from kestrelctl.core.model.job.channel_rules import SOCKET

KEY = secrets.token_bytes(32)


class Owner:
    """The owner of an interpreter that runs in a directory, as a worker would connect them."""

    def __init__(self, directory: Path, /, **wishes: Any) -> None:
        self._messages = Messages(KEY)
        self._number = 0
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(directory / SOCKET))
        listening.listen()
        (directory / "token").touch()
        self._process = subprocess.Popen(
            [sys.executable, "-c", BOOTSTRAP % SOCKET],
            env={"KESTREL_SCRATCH": str(directory), "PATH": "/bin:/usr/bin"},
            cwd=directory,
        )
        self._channel, _ = listening.accept()
        listening.close()
        usual = {
            "key": KEY.hex(), "call_seconds": None, "idle_seconds": 60.0, "prints": False,
            "python": list(sys.version_info[:2]), "directory": str(directory), "token": "token",
            "cloudpickle": Path(cloudpickle.cloudpickle.__file__).read_text(), "path": [],
            "authorities": "", "piece_bytes": 1 << 25,
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
        self.says(
            "calls", blobs, function="f", ids=list(numbers), files=[""] * len(numbers), shares=[]
        )

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


def test_one_that_can_hear_its_owner_no_more_ends(owner: Owner) -> None:
    """Calls that it is given would wait for it."""
    owner.says("something that only another version says")
    assert owner.ends() == BROKEN


def test_it_forgets_functions_but_for_those_of_its_calls(owner: Owner, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def work(number: int) -> int:
        if number == 1:
            gate.read_bytes()
        return number

    owner.calls(work, 1, 2)
    owner.says("forget")
    gate.write_bytes(b"go")
    assert set(owner.results(2)) == {1, 2}
    owner.says("function", [cloudpickle.dumps(work)], function="g")
    owner.says("forget")
    blobs = [pickle.dumps(((3,), {}))]
    owner.says("calls", blobs, function="g", ids=[3], files=[""], shares=[])
    owner.says("sync", ids=[3])
    assert owner.hears()[0] == {"op": "missing", "ids": [3], "sizes": []}


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


def test_who_has_not_heard_of_it_and_begins_again_is_greeted_again(owner: Owner) -> None:
    owner._send(first_frame({}))
    owner.says("sync", ids=[7])
    owner.says("end")
    assert [owner.hears()[0]["op"] for _ in range(2)] == ["hello", "missing"]


def test_of_two_messages_that_each_miss_a_frame_nothing_is_read(owner: Owner) -> None:
    """The end of one and the beginning of the next were lost together."""
    owner.says("function", [cloudpickle.dumps(lambda data: sorted(set(data)))], function="f")
    first, second = (
        list(
            frames_of(
                100 + number,
                {"op": "calls", "function": "f", "ids": [number], "files": [""], "shares": []},
                [pickle.dumps(((bytes([number]) * 300_000,), {}))],
            )
        )
        for number in (1, 2)
    )
    owner._send(first[0])
    owner._send(second[1])
    owner.says("sync", ids=[1, 2])
    header, _ = owner.hears()
    assert (header["op"], header["ids"]) == ("missing", [1, 2])


@pytest.mark.parametrize("lost", ["the function", "what is shared"])
def test_a_call_that_came_without_what_it_needs_counts_as_missing(owner: Owner, lost: str) -> None:
    given = [] if lost == "the function" else [4]
    if given:
        owner.says("function", [cloudpickle.dumps(abs)], function="f")
    arguments = [pickle.dumps(((-1,), {}))]
    owner.says("calls", arguments, function="f", ids=[1], files=[""], shares=given)
    owner.says("sync", ids=[1])
    header, _ = owner.hears()
    assert (header["op"], header["ids"]) == ("missing", [1])
    owner.says("share", [pickle.dumps("shared")], share=4, file="")
    owner.says("function", [cloudpickle.dumps(abs)], function="f")
    owner.says("calls", arguments, function="f", ids=[1], files=[""], shares=given)
    assert owner.results(1)[1][0]["value"] == 1


def test_what_is_shared_and_cannot_be_loaded_fails_the_calls_that_use_it(tmp_path: Path) -> None:
    def work(number: int) -> object:
        from kestrelctl.client.interpreter import shared

        return shared(number)

    with closing(Owner(tmp_path, idle_seconds=0.5)) as owner:
        owner.says("share", [b"cnothing_like_it\nwhat\n."], share=4, file="")
        owner.calls(work, 4)
        assert owner.results(1)[4][0]["type"] == "ModuleNotFoundError"


def test_a_large_result_that_is_said_twice_lies_in_one_file(owner: Owner) -> None:
    owner.calls(lambda _number: b"x" * 1_000_000, 1)
    first = owner.results(1)
    owner.says("sync", ids=[1])
    assert owner.results(1) == first


def test_a_large_result_goes_through_messages_where_no_file_can_be_written(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "token").touch()
    with closing(Owner(tmp_path, directory=str(full))) as owner:
        assert owner.greeting[0]["files"]
        shutil.rmtree(full)
        owner.calls(lambda _number: LARGE, 1)
        entry, blob = owner.results(1)[1]
    assert "file" not in entry
    assert pickle.loads(blob) == LARGE


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


class Share:
    """A file share on this machine.

    Attributes:
        files: the bytes of each path.
        url: its address.
    """

    def __init__(self) -> None:
        files: dict[str, bytes] = {}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                data = files.get(self.path)
                self.send_response(404 if data is None else 200)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                self.wfile.write(data or b"")

            def do_PUT(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                allowed = self.headers["Authorization"] == "by the owner"
                if allowed:
                    files[self.path] = data
                self.send_response(201 if allowed else 403)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                """Says nothing."""

        self.files = files
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def has(self, data: bytes, *pieces: bytes) -> dict[str, Any]:
        """Keeps the pieces of something; returns what is told of it."""
        found = []
        for piece in pieces or (data,):
            path = f"/{len(self.files)}"
            self.files[path] = piece
            digest = hashlib.sha256(piece).hexdigest()
            found.append({"url": self.url + path, "sha256": digest, "size_bytes": len(piece)})
        whole = hashlib.sha256(data).hexdigest()
        return {"sha256": whole, "size_bytes": len(data), "pieces": found}

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def share() -> Iterator[Share]:
    found = Share()
    yield found
    found.close()


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Owner]:
    """The owner of an interpreter that sees no files of the owner's machine."""
    found = Owner(tmp_path, directory="")
    yield found
    found.close()


LARGE = b"large" * 100_000


def test_what_is_large_comes_from_the_file_share_and_goes_there(far: Owner, share: Share) -> None:
    arguments = pickle.dumps(((LARGE,), {}))
    stored = share.has(arguments, arguments[:200_000], arguments[200_000:])
    far.says("function", [cloudpickle.dumps(lambda data: data + b"!")], function="f")
    far.says("calls", [b""], function="f", ids=[1], files=[stored], shares=[])
    asked, _ = far.hears()
    assert asked["op"] == "place"
    place = f"{share.url}/result"
    headers = {"Authorization": "by the owner"}
    far.says("place", place=asked["place"], put=place, get=place, headers=headers)
    entry, blob = far.results(1)[1]
    data = share.files["/result"]
    assert (entry["kind"], blob, pickle.loads(data)) == (PICKLED, b"", LARGE + b"!")
    assert entry["stored"]["sha256"] == hashlib.sha256(data).hexdigest()
    assert [piece["url"] for piece in entry["stored"]["pieces"]] == [place]


@pytest.mark.parametrize("what", ["forged", "gone"])
def test_what_the_share_does_not_give_as_it_was_sent_is_not_opened(
    far: Owner, share: Share, what: str
) -> None:
    arguments = pickle.dumps(((LARGE,), {}))
    stored = share.has(arguments)
    if what == "forged":
        share.files["/0"] = pickle.dumps(((b"other",), {}))
    else:
        del share.files["/0"]
    far.says("function", [cloudpickle.dumps(len)], function="f")
    far.says("calls", [b""], function="f", ids=[1], files=[stored], shares=[])
    said, _ = far.hears()
    assert (said["op"], said["ids"]) == ("unfetched", [1])
    far.says("calls", [arguments], function="f", ids=[1], files=[""], shares=[])
    assert far.results(1)[1][0]["value"] == len(LARGE)


def test_what_is_shared_is_fetched_when_a_call_uses_it(far: Owner, share: Share) -> None:
    stored = share.has(cloudpickle.dumps({"a": LARGE}))
    lost = share.has(b"nothing")
    share.files.clear()
    share.files["/0"] = cloudpickle.dumps({"a": LARGE})
    far.says("share", [b""], share=4, file=stored)
    far.says("share", [b""], share=5, file=lost)

    def work(number: int) -> int:
        from kestrelctl.client.interpreter import shared

        return len(shared(number)["a"])

    far.calls(work, 4, 5)
    assert far.results(1)[4][0]["value"] == len(LARGE)
    said, _ = far.hears()
    assert (said["op"], said["ids"]) == ("unfetched", [5])


@pytest.mark.parametrize("refused", ["no place", "not taken"])
def test_a_result_goes_through_messages_where_the_share_does_not_take_it(
    far: Owner, share: Share, refused: str
) -> None:
    far.calls(lambda number: LARGE, 1)
    asked, _ = far.hears()
    assert asked["op"] == "place"
    place = "" if refused == "no place" else f"{share.url}/result"
    far.says("place", place=asked["place"], put=place, get=place, headers={})
    entry, blob = far.results(1)[1]
    assert "stored" not in entry
    assert pickle.loads(blob) == LARGE
    far.calls(lambda number: LARGE, 2)
    assert pickle.loads(far.results(1)[2][1]) == LARGE, "and is not asked again"


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
    header, _ = owner.hears()
    assert (header["op"], header["ids"]) == ("ending", [2]), "before it looks free"
    (entry, _) = owner.results(1)[1]
    assert (entry["kind"], entry["type"]) == (RAISED, "TimeoutError")
    assert owner.ends() == 75
    owner.close()


def test_another_version_of_python_loads_no_function(tmp_path: Path) -> None:
    owner = Owner(tmp_path, python=[3, 99])
    assert owner.greeting[0]["python"] == list(sys.version_info[:3])
    assert owner.ends() == 0
    owner.close()
