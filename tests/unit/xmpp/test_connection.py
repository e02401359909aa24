"""A connection that breaks and comes back: what is said, what is not, and who is told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from types import SimpleNamespace
from xml.etree.ElementTree import Element, fromstring

import pytest
from jobkit import job_spec
from msgspec.structs import replace
from neighbourskit import on_its_own_clock

from kestrelctl.errors import (
    Busy,
    KestrelError,
    TimedOut,
    Undelivered,
    Unreachable,
    Untrusted,
    UsageError,
)
from kestrelctl.protocol import codec, directions
from kestrelctl.protocol.answers import (
    Assets,
    Changed,
    Failed,
    Jobs,
    Reply,
    Submitted,
    SubmittedEach,
)
from kestrelctl.protocol.chat.body import JUST_TEXT, ChatMarks
from kestrelctl.protocol.codec import MAX_PAYLOAD_BYTES
from kestrelctl.protocol.requests import (
    AnyRequest,
    CancelJobs,
    ListAssets,
    SubmitEach,
    SubmitJob,
    SubmitJobs,
    UploadItems,
    Watch,
)
from kestrelctl.xmpp import xmpp_session
from kestrelctl.xmpp.login import LoginRefused, agree
from kestrelctl.xmpp.loop_stream import XmppStream
from kestrelctl.xmpp.stream import StreamFailed
from kestrelctl.xmpp.user import AWAY, REPEAT_SECONDS, PerhapsHeard, UserConnection
from kestrelctl.xmpp.xmpp_session import ECHO_CHARACTERS, MOST_STANZA_BYTES, IqRefused


class Wire:
    """A session without a server: the test says when it is up, and reads what it writes.

    Attributes:
        told: what its listener hears.
        typed: what people write to it.
        connects: how often it began to connect.
        refusal: how that ends; None for not at all.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, tls: bool = False) -> None:
        monkeypatch.setattr(xmpp_session, "detect_dead_peers", lambda transport: None)
        self.told: list[str] = []
        self.typed: list[tuple[str, ChatMarks]] = []
        self.written: list[str] = []
        self.connects = 0
        self.refusal: Exception | None = None
        self.session = xmpp_session.client(
            "ada@x",
            "secret",
            "127.0.0.1",
            1,
            self,  # type: ignore[arg-type]
            tls=tls,
        )
        monkeypatch.setattr(self.session._login, "open", self._open)

    async def _open(self, stream: XmppStream, host: str, port: int) -> str:
        self.connects += 1
        if self.refusal is None:
            await asyncio.Event().wait()
        raise self.refusal or AssertionError

    def on_online(self) -> None:
        self.told.append("online")

    def on_offline(self, why: str) -> None:
        self.told.append(why)

    def on_body(self, sender: str, to: str, body: str, marks: ChatMarks = JUST_TEXT) -> None:
        self.typed.append((body, marks))

    def up(self) -> None:
        stream = self.stream = self.session._stream = XmppStream(self.session)
        stream.write = self.written.append  # type: ignore[method-assign]
        stream._expect_stream()
        stream.data_received(
            b"<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>"
        )
        stream._early.popleft()
        self.session._on_start(stream)
        stream.listen()

    def breaks(self, why: str = "reset") -> None:
        self.session.on_closed(why)

    async def settled(self) -> None:
        """Returns when nothing more happens by itself."""
        for _ in range(10):
            await asyncio.sleep(0)

    def hears(self, xml: str) -> None:
        self.stream.data_received(xml.encode())

    async def said(self) -> str:
        """All that it has written since it was asked last."""
        await asyncio.sleep(0)
        self.session._flush()
        text, self.written[:] = "".join(self.written), []
        return text

    def close(self) -> None:
        """Without a server there is nobody to say goodbye to."""
        self.session._stopping = True
        self.session._timer.stop()
        if self.session._opening is not None:
            self.session._opening.cancel()


@pytest.fixture
async def wire(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Wire]:
    made = Wire(monkeypatch)
    yield made
    made.close()


async def test_of_a_message_the_words_are_handed_on_and_what_it_corrects(wire: Wire) -> None:
    wire.up()
    wire.hears(
        "<message xmlns='jabber:client' from='eve@x' to='ada@x' type='chat' id='m2'>"
        "<body>&gt; Job 12\nexplain</body><reply xmlns='urn:xmpp:reply:0' id='m0'/>"
        "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'><body start='0' end='9'/>"
        "</fallback><replace xmlns='urn:xmpp:message-correct:0' id='m1'/></message>"
    )
    wire.hears(
        "<message xmlns='jabber:client' from='eve@x' to='ada@x' type='chat'><body>👍</body>"
        "<reactions xmlns='urn:xmpp:reactions:0' id='m0'/></message>"
    )
    assert wire.typed == [("explain", ChatMarks(id="m2", corrects="m1"))]


async def test_what_was_not_written_before_a_break_is_dropped(wire: Wire) -> None:
    wire.up()
    wire.session.send("old", "b@x")
    wire.breaks()
    wire.up()
    wire.session.send("new", "b@x")
    said = await wire.said()
    assert "new" in said
    assert "old" not in said


async def test_what_would_end_the_connection_is_not_sent(wire: Wire) -> None:
    wire.up()
    wire.session.send("x" * MOST_STANZA_BYTES, "b@x")
    wire.session.send("y", "b@x")
    assert "x" * 100 not in await wire.said()


async def test_a_failure_is_told_once_however_often_it_is_tried_again(wire: Wire) -> None:
    for _ in range(5):
        wire.session.start()
        wire.breaks("nobody is there")
    assert wire.told == ["nobody is there"]
    wire.session.start()
    wire.up()
    wire.breaks("nobody is there")
    assert wire.told == ["nobody is there", "online", "nobody is there"]


@pytest.mark.parametrize(
    ("condition", "text", "words"),
    [
        ("conflict", "Component already connected", "<conflict/> (Component already connected)"),
        ("undefined-condition", "x" * 1000, f"<undefined-condition/> ({'x' * 200})"),
        ("system-shutdown", "", "<system-shutdown/>"),
    ],
)
async def test_why_the_server_ended_the_connection_is_told_in_its_own_words(
    wire: Wire, condition: str, text: str, words: str
) -> None:
    """After them the connection closes, which says nothing."""
    wire.up()
    wire.session.on_closed(StreamFailed(condition, text))
    wire.breaks("End of stream")
    assert wire.told == ["online", f"it ended the connection with {words}"]
    assert wire.session.link == f"the server is away: it ended the connection with {words}"


#: Of ejabberd 24.12 and Prosody 0.12.
TOO_LARGE = (
    "<stream:error><policy-violation xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>"
    "<text xmlns='urn:ietf:params:xml:ns:xmpp-streams' xml:lang='en'>XML stanza is too big</text>"
    "</stream:error></stream:stream>"
)


async def test_what_the_server_does_not_take_is_no_outage(wire: Wire) -> None:
    wire.up()
    wire.hears(TOO_LARGE)
    assert wire.told == [
        "online",
        "the server does not take what it was sent (it ended the connection with"
        " <policy-violation/> (XML stanza is too big)); if that was too large, raise the server's"
        " limit for a stanza to 1 MiB",
    ]
    wire.up()
    assert wire.session.problem is None


async def test_a_policy_that_lets_nobody_in_is_not_about_what_was_sent(wire: Wire) -> None:
    """As ejabberd's after too many wrong passwords."""
    wire.refusal = StreamFailed("policy-violation", "Too many failed authentications")
    wire.session.start()
    await wire.settled()
    words = "it ended the connection with <policy-violation/> (Too many failed authentications)"
    assert wire.told == [words]
    assert wire.session.problem is None


@pytest.mark.parametrize(
    ("condition", "text", "refused", "words"),
    [
        ("not-authorized", "Account deleted", True, "the server refused the credentials: Account"),
        ("resource-constraint", "", False, "it refused a session with <resource-constraint/>"),
    ],
)
async def test_a_server_that_gives_no_session_is_not_waited_for(
    wire: Wire, condition: str, text: str, refused: bool, words: str
) -> None:
    wire.refusal = LoginRefused(condition, text, is_bind=True)
    wire.session.start()
    await wire.settled()
    assert (wire.session.refused is not None) is refused
    assert [told.startswith(words) for told in wire.told] == [True]
    assert wire.session._timer.is_set


#: RFC 6120, 4.9.3
STREAM_ERRORS = [
    "bad-format",
    "bad-namespace-prefix",
    "conflict",
    "connection-timeout",
    "host-gone",
    "host-unknown",
    "improper-addressing",
    "internal-server-error",
    "invalid-from",
    "invalid-namespace",
    "invalid-xml",
    "not-authorized",
    "not-well-formed",
    "policy-violation",
    "remote-connection-failed",
    "reset",
    "resource-constraint",
    "restricted-xml",
    "see-other-host",
    "system-shutdown",
    "undefined-condition",
    "unsupported-encoding",
    "unsupported-feature",
    "unsupported-stanza-type",
    "unsupported-version",
]


@pytest.mark.parametrize("condition", STREAM_ERRORS)
@pytest.mark.parametrize("was_online", [False, True])
async def test_of_the_ends_of_streams_one_alone_refuses_the_credentials(
    wire: Wire, condition: str, *, was_online: bool
) -> None:
    """A worker that is refused ends for good. A server that starts may not know its hosts yet."""
    if was_online:
        wire.up()
        wire.told.clear()
    wire.session.on_closed(StreamFailed(condition, "words of the server"))
    assert (wire.session.refused is not None) is (condition == "not-authorized")
    assert wire.session._timer.is_set, "it tries again"
    [told] = wire.told
    assert "words of the server" in told
    assert wire.session.refused or f"<{condition}/>" in told


@pytest.mark.parametrize(("condition", "calls"), [("conflict", 1), ("system-shutdown", 0)])
async def test_a_conflict_is_told_apart(wire: Wire, condition: str, calls: int) -> None:
    conflicts: list[None] = []
    wire.session.on_conflict = lambda: conflicts.append(None)
    wire.session.on_closed(StreamFailed(condition, ""))
    assert len(conflicts) == calls


async def test_one_failure_is_followed_by_one_attempt(wire: Wire) -> None:
    wire.session.start()
    wire.breaks()
    first = wire.session._timer.moment
    wire.breaks()
    assert first is not None
    assert wire.session._timer.moment == first


async def test_a_stopped_session_does_not_come_back(wire: Wire) -> None:
    wire.session.start()
    await wire.settled()
    wire.close()
    wire.breaks()
    assert not wire.session._timer.is_set
    wire.session.start()
    await wire.settled()
    assert wire.connects == 1


async def test_an_attempt_that_leads_nowhere_ends(
    monkeypatch: pytest.MonkeyPatch, wire: Wire
) -> None:
    monkeypatch.setattr(xmpp_session, "_CONNECT_SECONDS", 0.0)
    wire.session.start()
    await wire.settled()
    assert wire.told == ["no session within 0 s"]


def features(*offers: str) -> Element:
    children = "".join(f"<{offer} xmlns='urn:x'/>" for offer in offers)
    return fromstring(f"<features xmlns='http://etherx.jabber.org/streams'>{children}</features>")


def test_nothing_is_said_in_the_clear_where_encryption_is_wanted() -> None:
    agree(features("mechanisms", "starttls"), wants=True)
    with pytest.raises(Untrusted):
        agree(features("mechanisms"), wants=True)


@pytest.mark.parametrize("offers", [("starttls",), ("starttls", "limits")])
def test_a_server_that_lets_nobody_in_without_encryption_says_so(offers: tuple[str, ...]) -> None:
    """Prosody 13 offers its limits beside the encryption (XEP-0478)."""
    with pytest.raises(UsageError) as caught:
        agree(features(*offers), wants=False)
    assert "--no-tls" in str(caught.value.hint)


@pytest.mark.parametrize("offers", [("starttls", "mechanisms"), ("starttls", "bind", "session")])
def test_who_need_not_encrypt_goes_on_without(offers: tuple[str, ...]) -> None:
    """Prosody goes on offering encryption to whom it has let in."""
    agree(features(*offers), wants=False)


# -- what the server is asked ----------------------------------------------------------------------


def iq(sender: str, kind: str = "result", error: str = "") -> str:
    return f"<iq xmlns='jabber:client' id='k1' from='{sender}' type='{kind}'>{error}</iq>"


async def test_only_the_one_that_was_asked_answers(wire: Wire) -> None:
    wire.up()
    asked = asyncio.ensure_future(wire.session.ask_iq("<q/>", "server"))
    await asyncio.sleep(0)
    wire.hears(iq("mallory@x"))
    await asyncio.sleep(0)
    assert not asked.done()
    wire.hears(iq("server"))
    assert (await asked).get("from") == "server"


async def test_a_refusal_names_its_condition(wire: Wire) -> None:
    wire.up()
    asked = asyncio.ensure_future(wire.session.ask_iq("<q/>", "server"))
    await asyncio.sleep(0)
    condition = "<forbidden xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
    wire.hears(iq("server", "error", f"<error xmlns='jabber:client'>{condition}</error>"))
    with pytest.raises(IqRefused) as caught:
        await asked
    assert caught.value.condition == "forbidden"


async def test_who_asks_does_not_wait_for_a_connection_that_is_gone(wire: Wire) -> None:
    wire.up()
    asked = asyncio.ensure_future(wire.session.ask_iq("<q/>", "server"))
    await asyncio.sleep(0)
    wire.breaks()
    await asyncio.sleep(0)
    assert asked.done()
    with pytest.raises(Unreachable):
        await asked


async def test_who_asks_does_not_wait_for_a_session_that_is_stopped(wire: Wire) -> None:
    wire.up()
    asking = asyncio.create_task(wire.session.ask_iq("<ping/>", "x", timeout_seconds=60.0))
    await asyncio.sleep(0)
    await wire.session.stop()
    with pytest.raises(Unreachable):
        async with asyncio.timeout(5.0):
            await asking


async def test_marks_that_come_back_tell_how_far_the_server_is(wire: Wire) -> None:
    wire.session.use_echoes("x")
    wire.up()
    wire.session.send("y" * ECHO_CHARACTERS, "b@x")
    marked = re.search("<message to='x' from='x' id='(\\d+)'", await wire.said())
    assert marked is not None
    wire.session.send("z" * 100, "b@x")
    await wire.said()
    assert wire.session.backlog_bytes() > ECHO_CHARACTERS
    wire.hears(f"<message xmlns='c' from='eve@x' id='{marked[1]}'></message>")
    assert wire.session.backlog_bytes() > ECHO_CHARACTERS
    wire.hears(f"<message xmlns='c' from='x' id='{marked[1]}' type='headline'/>")
    assert 100 <= wire.session.backlog_bytes() < 300
    wire.session.send("y" * ECHO_CHARACTERS, "b@x")
    await wire.said()
    wire.breaks()
    assert wire.session.backlog_bytes() == 0


async def test_what_the_server_has_taken_is_told_and_what_was_lost_is_not(wire: Wire) -> None:
    wire.session.use_echoes("x")
    wire.up()
    taken: list[str] = []
    for name in ("first", "second"):
        wire.session.send_body(name, "b@x")
        wire.session.when_taken(lambda name=name: taken.append(name))  # type: ignore[misc]
    first, second = re.findall("<message to='x' from='x' id='(\\d+)'", await wire.said())
    assert taken == []
    wire.hears(f"<message xmlns='c' from='x' id='{first}' type='headline'/>")
    assert taken == ["first"]
    wire.breaks()
    wire.up()
    wire.hears(f"<message xmlns='c' from='x' id='{second}' type='headline'/>")
    assert taken == ["first"]


async def test_who_is_told_to_come_back_later_does(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kestrelctl.xmpp.user.pause_seconds", lambda *_: 0.0)
    busy = [True, False]
    user = UserConnection("x")
    user.on_online()
    asked: list[str] = []

    def send(text: str, to: str) -> None:
        request = directions.requests.decode(text)
        asked.append(request.id)
        answer: Reply = Changed(id=request.id, what=[])
        if busy.pop(0):
            answer = Failed(id=request.id, code="busy", message="too many")
        user.on_payload("jobs@x", "ada@x/1", codec.encode(answer))

    user.session = SimpleNamespace(send=send)  # type: ignore[assignment]
    answer = await user.ask(CancelJobs(jobs="7"))
    assert isinstance(answer, Changed)
    assert len(asked) == 2
    busy.append(True)
    with pytest.raises(Busy):
        await user.ask(CancelJobs(jobs="7"), 0.0)


@pytest.mark.parametrize(
    ("jobs", "why"),
    [
        pytest.param("7," * MAX_PAYLOAD_BYTES, "is too large", id="long"),
        pytest.param("&" * 200_000, "is too large", id="long in XML"),
        pytest.param("\udc80", "UTF-8", id="no text"),
    ],
)
async def test_what_cannot_be_sent_is_refused_instead_of_waited_for(jobs: str, why: str) -> None:
    def send(_text: str, _to: str) -> None:
        raise AssertionError("it was sent, and an answer is waited for")

    user = UserConnection("x")
    user.session = SimpleNamespace(send=send)  # type: ignore[assignment]
    user.on_online()
    with pytest.raises(UsageError, match=why):
        await user.ask(CancelJobs(jobs=jobs), 1e6)


async def test_a_request_that_the_server_refuses_is_not_a_manager_that_is_away() -> None:
    user = UserConnection("x")
    user.session = SimpleNamespace(  # type: ignore[assignment]
        send=lambda text, to: user.on_bounce("jobs@x", "policy-violation")
    )
    user.on_online()
    with pytest.raises(Undelivered) as refused:
        await user.ask(CancelJobs(jobs="7"))
    assert "policy-violation" in (refused.value.cause or "")
    assert "manager" not in f"{refused.value.message} {refused.value.hint}"


async def test_an_answer_that_cannot_be_read_ends_its_own_request_alone() -> None:
    user, asked = UserConnection("x"), []
    user.session = SimpleNamespace(  # type: ignore[assignment]
        send=lambda text, to: asked.append(directions.requests.decode(text).id)
    )
    user.on_online()
    asking = [asyncio.create_task(user.ask(CancelJobs(jobs=jobs))) for jobs in "78"]
    await asyncio.sleep(0)
    user.on_payload("jobs@x", "a@x/1", f'{{"type": "changed", "id": "{asked[0]}", "what": 1}}')
    user.on_payload("jobs@x", "a@x/1", '{"type": "changed", "id": "of long ago", "what": 1}')
    user.on_payload("jobs@x", "a@x/1", codec.encode(Changed(id=asked[1], what=["8"])))
    with pytest.raises(KestrelError, match="cannot be read"):
        await asking[0]
    assert await asking[1] == Changed(id=asked[1], what=["8"])


async def test_an_answer_to_nobody_knows_what_ends_all_requests() -> None:
    user = UserConnection("x")
    user.session = SimpleNamespace(send=lambda text, to: None)  # type: ignore[assignment]
    user.on_online()
    asking = [asyncio.create_task(user.ask(CancelJobs(jobs=jobs))) for jobs in "78"]
    await asyncio.sleep(0)
    user.on_payload("jobs@x", "a@x/1", '{"type": "chan')
    for each in asking:
        with pytest.raises(KestrelError, match="cannot be read"):
            await each


class Silent:
    """A user whose manager answers the last of so many requests only."""

    def __init__(self, times: int, answer: Reply | None = None) -> None:
        self.user = UserConnection("x")
        self.user.session = SimpleNamespace(send=self._send)  # type: ignore[assignment]
        self.user.on_online()
        self.times = times
        self._answer = answer or Changed(id="", what=[])
        self.asked: list[tuple[str, float]] = []
        self._began = asyncio.get_running_loop().time()

    def _send(self, text: str, to: str) -> None:
        request = directions.requests.decode(text)
        self.asked.append((request.id, asyncio.get_running_loop().time() - self._began))
        if len(self.asked) == self.times:
            answer = replace(self._answer, id=request.id)
            self.user.on_payload("jobs@x", "ada@x/1", codec.encode(answer))


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        pytest.param(ListAssets(), Assets(id="", assets=[]), id="ListAssets"),
        pytest.param(Watch(jobs="7"), Jobs(id="", jobs=[]), id="Watch"),
        pytest.param(
            SubmitJob(spec=job_spec(), key="k"),
            Submitted(id="", job_id=7, tasks=1),
            id="SubmitJob",
        ),
        pytest.param(
            SubmitEach(jobs=[SubmitJob(spec=job_spec(), key=key) for key in "kl"]),
            SubmittedEach(id="", answers=[]),
            id="SubmitEach",
        ),
    ],
)
def test_what_may_be_done_twice_is_asked_again_under_the_same_id(
    request_: AnyRequest, answer: Reply
) -> None:
    """A manager that was killed has taken the first along; either answer will do."""

    @on_its_own_clock
    async def asks() -> None:
        silent = Silent(3, answer)
        await silent.user.ask(request_, 30.0)
        assert silent.asked == [("1", 0.0), ("1", REPEAT_SECONDS), ("1", 2 * REPEAT_SECONDS)]

    asks()


@pytest.mark.parametrize(
    "request_",
    [
        CancelJobs(jobs="7"),
        SubmitJob(spec=job_spec()),
        SubmitJob(spec=job_spec(), key="k", upload="u"),
        SubmitJobs(upload="u", key="k"),
        UploadItems(upload="u", lines=["a"]),
        SubmitEach(jobs=[SubmitJob(spec=job_spec(), key=key) for key in ("k", "")]),
    ],
    ids=["cancel", "no key", "upload", "graph", "items", "one of several without a key"],
)
def test_what_would_be_done_twice_is_asked_once(request_: AnyRequest) -> None:
    @on_its_own_clock
    async def asks() -> None:
        silent = Silent(times=2)
        with pytest.raises(TimedOut):
            await silent.user.ask(request_, 3 * REPEAT_SECONDS)
        assert len(silent.asked) == 1

    asks()


# -- a pool that is away for a moment --------------------------------------------------------------


class Away:
    """A user whose server, or manager, is away for a while.

    Attributes:
        asked: the ids of requests that left.
        replies: what comes of each: a condition with which it bounces, or an answer.
        answer: the answer.
    """

    answer: Reply = Changed(id="", what=[])

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *replies: str) -> None:
        monkeypatch.setattr("kestrelctl.xmpp.user.pause_seconds", lambda *_: 0.0)
        self.user = UserConnection("x")
        self.replies = list(replies)
        self.asked: list[str] = []
        self.user.session = SimpleNamespace(  # type: ignore[assignment]
            send=self._send, refused=None, problem=None
        )

    def _send(self, text: str, to: str) -> None:
        request = directions.requests.decode(text)
        self.asked.append(request.id)
        if not self.replies:
            return
        reply = self.replies.pop(0)
        if reply:
            self.user.on_bounce("jobs@x", reply)
        else:
            answer = replace(self.answer, id=request.id)
            self.user.on_payload("jobs@x", "a@x/1", codec.encode(answer))


@pytest.mark.parametrize("condition", AWAY)
async def test_who_comes_before_the_manager_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    away = Away(monkeypatch, condition, condition, "")
    away.user.on_online()
    assert isinstance(await away.user.ask(CancelJobs(jobs="7")), Changed)
    assert len(away.asked) == 3


async def test_but_not_longer_than_he_said(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Away(monkeypatch, AWAY[0], AWAY[0], "")
    away.user.on_online()
    with pytest.raises(Undelivered):
        await away.user.ask(CancelJobs(jobs="7"), 0.0)
    assert len(away.asked) == 1


async def test_who_shows_that_a_manager_is_away_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = Away(monkeypatch, AWAY[0], "")
    away.user.on_online()
    with pytest.raises(Unreachable):
        await away.user.ask(CancelJobs(jobs="7"), waits=False)
    assert len(away.asked) == 1


async def test_what_the_server_does_not_let_pass_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = Away(monkeypatch, "policy-violation", "")
    away.user.on_online()
    with pytest.raises(Undelivered):
        await away.user.ask(CancelJobs(jobs="7"))


async def test_what_ended_the_connection_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Away(monkeypatch)
    away.user.on_online()
    asking = asyncio.ensure_future(away.user.ask(ListAssets()))
    await asyncio.sleep(0)
    away.user.session.problem = KestrelError("the server does not take what it was sent")
    away.user.on_offline("…")
    away.user.on_online()
    with pytest.raises(KestrelError, match="does not take what it was sent") as caught:
        await asking
    assert not isinstance(caught.value, Unreachable)
    assert len(away.asked) == 1


async def test_of_several_requests_none_is_sent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Away(monkeypatch)
    away.user.on_online()
    both = [asyncio.ensure_future(away.user.ask(CancelJobs(jobs=job))) for job in "78"]
    await asyncio.sleep(0)
    away.user.on_bounce("jobs@x", AWAY[0])
    found = await asyncio.gather(*both, return_exceptions=True)
    assert [type(each) for each in found] == [PerhapsHeard, PerhapsHeard]
    assert len(away.asked) == 2


async def test_who_only_reads_asks_again_when_the_pool_went_away_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program that has several requests under way must not fail at each restart."""
    away = Away(monkeypatch)
    away.user.on_online()
    asking = [asyncio.ensure_future(away.user.ask(ListAssets())) for _ in range(2)]
    await asyncio.sleep(0)
    away.user.on_bounce("jobs@x", AWAY[0])
    await asyncio.sleep(0.01)
    away.user.on_offline("reset")
    away.replies, away.answer = ["", ""], Assets(id="", assets=[])
    away.user.on_online()
    assert await asyncio.gather(*asking) == [
        Assets(id=number, assets=[]) for number in away.asked[-2:]
    ]
    assert len(away.asked) == 6


async def test_who_is_cancelled_just_as_the_answer_comes_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = Away(monkeypatch)
    away.user.on_online()
    asking = asyncio.create_task(away.user.ask(Watch(jobs="7")))
    await asyncio.sleep(0)
    [answer] = away.user._pending.values()
    answer.add_done_callback(lambda _: asking.cancel())
    found = Jobs(id=away.asked[0], jobs=[])
    away.user.on_payload("jobs@x", "a@x/1", codec.encode(found))
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_who_is_cancelled_just_as_the_server_is_there_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for turns in range(4):
        away = Away(monkeypatch)
        asking = asyncio.create_task(away.user.ask(Watch(jobs="7")))
        for _ in range(3):
            await asyncio.sleep(0)
        away.user.on_online()
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(5.0):
                await asking


def test_who_waits_for_an_answer_is_told_when_the_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @on_its_own_clock
    async def asks() -> None:
        away = Away(monkeypatch)

        async def stop() -> None:
            """There is no server."""

        away.user.session.stop = stop  # type: ignore[method-assign]
        away.user.on_online()
        asking = asyncio.create_task(away.user.ask(Watch(jobs="7")))
        await asyncio.sleep(0)
        assert away.asked
        await away.user.close()
        with pytest.raises(KestrelError, match="closed"):
            await asking
        with pytest.raises(KestrelError, match="closed"):
            await away.user.ask(Watch(jobs="7"))
        assert len(away.asked) == 1

    asks()


async def test_nothing_is_asked_before_the_server_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Away(monkeypatch, "")
    asking = asyncio.ensure_future(away.user.ask(CancelJobs(jobs="7")))
    await asyncio.sleep(0)
    assert away.asked == [], "it would be dropped, and missed for the whole time limit"
    away.user.on_online()
    assert isinstance(await asking, Changed)
