"""A connection for a command of a moment: an answer at once, or none, and never one half."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serverkit import RUBBISH, Babbling, Recorded, Server
from streamkit import JSON, SASL

from kestrelctl.at_once import TakesLonger, at_once
from kestrelctl.errors import KestrelError, NotAllowed, NotFound, Untrusted
from kestrelctl.protocol.job_answers import Jobs
from kestrelctl.protocol.job_requests import CancelJobs, ListJobs
from kestrelctl.protocol.request import Failed, Reply, Request
from kestrelctl.xmpp import brief_user
from kestrelctl.xmpp.brief_user import ANSWER_SECONDS, LOGIN_SECONDS, connect_briefly
from kestrelctl.xmpp.login import ClientLogin
from kestrelctl.xmpp.stream import NEXT_ADDRESS_SECONDS

NONE = Jobs(id="1", jobs=[], total=0)


class Pool(Server):
    """A server with a manager that has no jobs."""

    def reply(self, request_id: str) -> Reply:
        return Jobs(id=request_id, jobs=[], total=0)


class Socket:
    """A connection with a server; nothing is sent anywhere, and no time passes.

    Args:
        server: None if nobody is there.
    """

    def __init__(self, server: Server | None) -> None:
        self._server = server
        self._brought: list[bytes] = []
        self._is_closed = False
        self.said: list[str] = []
        self.waited_in_vain = False
        self.waited_seconds: list[float] = []

    def settimeout(self, seconds: float) -> None:
        self.waited_seconds.append(seconds)

    def setsockopt(self, *_: object) -> None: ...

    def connect(self, _address: object) -> None:
        if self._server is None:
            raise ConnectionRefusedError

    def sendall(self, data: bytes) -> None:
        if self._is_closed or self._server is None:
            raise BrokenPipeError
        self.said.append(data.decode())
        answer = self._server.answer(data.decode())
        self._brought += re.findall(b".*?</message>|.+", answer or b"", re.DOTALL)
        self._is_closed = answer is None or self._server.closes

    def recv(self, most_bytes: int) -> bytes:
        if self._brought:
            whole = self._brought.pop(0)
            if whole[most_bytes:]:
                self._brought.insert(0, whole[most_bytes:])
            return whole[:most_bytes]
        if self._is_closed:
            return b""
        self.waited_in_vain = True
        raise TimeoutError

    def close(self) -> None:
        self._is_closed = True


def outcome(
    server: Server | None, request: Request | None = None, domain: str = "x"
) -> tuple[Reply | BaseException, Socket]:
    """Returns what comes of a request, and the connection that it used; anything else is raised."""
    used = Socket(server)

    async def asked() -> Reply:
        login = ClientLogin("ada@x", "secret", None)
        async with connect_briefly(domain, login, "127.0.0.1", 5222) as pool:
            return await pool.ask(request or ListJobs())  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(brief_user.socket, "socket", lambda *_: used)
        try:
            return at_once(asked()), used
        except (KestrelError, TakesLonger) as error:
            return error, used


def test_an_answer_comes_over_one_connection_that_is_closed() -> None:
    found, used = outcome(Pool())
    assert found == NONE
    assert used.said[-1] == "</stream:stream>"
    assert used._is_closed


def test_no_event_loop_is_needed_and_none_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncio.new_event_loop", lambda: pytest.fail("a loop was made"))
    assert outcome(Pool())[0] == NONE


def test_it_waits_no_longer_than_it_may() -> None:
    _, used = outcome(Pool())
    assert max(used.waited_seconds) <= max(LOGIN_SECONDS, ANSWER_SECONDS)
    assert used.waited_seconds[0] <= LOGIN_SECONDS


def test_a_refusal_is_the_error_of_its_code() -> None:
    class Refusing(Server):
        def reply(self, request_id: str) -> Reply:
            return Failed(id=request_id, code="not-found", message="there is no job 7")

    found, _ = outcome(Refusing())
    assert isinstance(found, NotFound)
    assert found.message == "there is no job 7"


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("not-authorized", NotAllowed),
        ("account-disabled", NotAllowed),
        ("temporary-auth-failure", TakesLonger),
        ("invalid-mechanism", TakesLonger),
    ],
)
def test_a_password_that_is_refused_is_not_tried_a_second_time(
    condition: str, kind: type[Exception]
) -> None:
    """Each try counts for the guard of the server; a command of a moment made two of them."""

    class Refusing(Server):
        def on_auth(self, said: str) -> str:
            return f"<failure xmlns='{SASL}'><{condition}/></failure>"

    found, _ = outcome(Refusing())
    assert isinstance(found, kind)


def test_a_pool_that_is_busy_takes_longer() -> None:
    class Busy(Server):
        def reply(self, request_id: str) -> Reply:
            return Failed(id=request_id, code="busy", message="too much is under way")

    assert isinstance(outcome(Busy())[0], TakesLonger)


def test_what_must_not_be_asked_twice_is_not_asked_here() -> None:
    found, used = outcome(Pool(), CancelJobs(jobs="7"))
    assert isinstance(found, TakesLonger)
    assert not any("<message" in said for said in used.said)


def test_nobody_there_takes_longer() -> None:
    assert isinstance(outcome(None)[0], TakesLonger)


def test_a_request_that_comes_back_takes_longer() -> None:
    class Alone(Server):
        def on_message(self, said: str) -> str:
            return (
                "<message from='jobs@x' type='error'><error type='wait'>"
                "<remote-server-timeout xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
                "</error></message>"
            )

    found, used = outcome(Alone())
    assert isinstance(found, TakesLonger)
    assert not used.waited_in_vain


@pytest.mark.parametrize("others", ["id", "domain"])
def test_an_answer_that_is_for_nobody_is_passed_over(others: str) -> None:
    class Chatty(Pool):
        def on_message(self, said: str) -> str:
            true = super().on_message(said)
            if others == "id":
                false = true.replace("&quot;id&quot;:&quot;1&quot;", "&quot;id&quot;:&quot;9&quot;")
            else:
                false = true.replace("from='jobs@x'", "from='jobs@y'").replace("total", "of")
            assert false != true
            return false + true

    assert outcome(Chatty())[0] == NONE


def test_an_answer_that_nobody_can_read_takes_longer() -> None:
    class Odd(Server):
        def on_message(self, said: str) -> str:
            return f"<message from='jobs@x'>{JSON}[</json></message>"

    assert isinstance(outcome(Odd())[0], TakesLonger)


def whole_length() -> int:
    recorded = RecordedPool(1 << 20, encrypted=False, silent=False)
    assert outcome(recorded)[0] == NONE
    return recorded.said_bytes


class RecordedPool(Recorded, Pool): ...


def test_a_connection_that_is_cut_or_falls_silent_at_any_byte_takes_longer() -> None:
    length = whole_length()
    assert length > 0
    for most_bytes in range(length):
        for silent in (False, True):
            found, _ = outcome(RecordedPool(most_bytes, encrypted=False, silent=silent))
            assert isinstance(found, TakesLonger), most_bytes


class BabblingPool(Babbling, Pool): ...


@settings(max_examples=200)
@given(
    sane=st.integers(0, 5),
    rubbish=st.lists(RUBBISH, min_size=1, max_size=4),
    silent=st.booleans(),
)
def test_rubbish_ends_with_an_answer_or_takes_longer(
    sane: int, rubbish: list[bytes], silent: bool
) -> None:
    found, _ = outcome(BabblingPool(sane, rubbish, encrypted=False, silent=silent))
    assert isinstance(found, Reply | TakesLonger | KestrelError)
    assert not isinstance(found, Untrusted)


def test_a_name_of_a_host_needs_no_codec_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def found(host: object, port: int, **_: object) -> list[object]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(brief_user.socket, "getaddrinfo", found)
    assert outcome(Pool())[0] == NONE
    assert asked == [b"127.0.0.1"]


def test_of_several_addresses_the_first_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The usual connection tries the others beside it."""
    one = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 5222))
    monkeypatch.setattr(brief_user.socket, "getaddrinfo", lambda *_, **__: [one, one])
    found, used = outcome(Pool())
    assert found == NONE
    assert used.waited_seconds[0] == NEXT_ADDRESS_SECONDS


def test_what_waits_for_something_else_is_no_work_of_a_moment() -> None:
    from asyncio import sleep

    made: Callable[[], object] = lambda: at_once(sleep(0))  # noqa: E731
    with pytest.raises(AssertionError, match="waits for an event loop"):
        made()
