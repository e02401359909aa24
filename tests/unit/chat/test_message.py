"""What a person wrote, out of the messages of chat programs."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

import pytest
from slixmpp.plugins import xep_0428, xep_0461
from slixmpp.stanza import Message

from kestrelctl.protocol.chat.body import JUST_TEXT, ChatKind, ChatMarks, typed_in

REPLY = "<reply xmlns='urn:xmpp:reply:0' id='m1' to='jobs@pool'/>"
OMEMO = "eu.siacs.conversations.axolotl"
SENTENCE = (
    "I sent you an OMEMO encrypted message but your client doesn’t seem to support that. "  # noqa: RUF001
    "Find more information on https://conversations.im/omemo"
)


def typed(content: str, attributes: str = "type='chat'") -> tuple[str, ChatMarks] | None:
    """What is read in a message."""
    return typed_in(
        fromstring(f"<message xmlns='jabber:component:accept' {attributes}>{content}</message>")
    )


def fallback(what: str, *ranges: tuple[object, object]) -> str:
    parts = "".join(f"<body start='{start}' end='{end}'/>" for start, end in ranges)
    return f"<fallback xmlns='urn:xmpp:fallback:0' for='{what}'>{parts}</fallback>"


def kind(content: str) -> ChatKind:
    found = typed(content)
    assert found is not None
    return found[1].kind


def test_a_plain_message_is_its_body() -> None:
    assert typed("<body>jobs</body>") == ("jobs", JUST_TEXT)
    assert typed("<body>jobs</body>", "") == ("jobs", JUST_TEXT)
    assert typed("<body>jobs</body>", "id='m7'") == ("jobs", ChatMarks(id="m7"))


@pytest.mark.parametrize(
    "content",
    [
        "<received xmlns='urn:xmpp:receipts' id='m1'/>",
        "<displayed xmlns='urn:xmpp:chat-markers:0' id='m1'/>",
        "<composing xmlns='http://jabber.org/protocol/chatstates'/>",
        "<reactions xmlns='urn:xmpp:reactions:0' id='m1'><reaction>👍</reaction></reactions>",
        "<reactions xmlns='urn:xmpp:reactions:0' id='m1'><reaction>👍</reaction></reactions>"
        "<body>&gt; Job 12\n👍</body>" + fallback("urn:xmpp:reactions:0"),
        f"<encrypted xmlns='{OMEMO}'><header sid='1'/></encrypted>"
        f"<encryption xmlns='urn:xmpp:eme:0' namespace='{OMEMO}'/>",
        f"<body>{SENTENCE}</body><encrypted xmlns='{OMEMO}'><header sid='1'/></encrypted>",
        "<body/>",
        "",
    ],
)
def test_what_asks_for_no_answer_is_passed_over(content: str) -> None:
    assert typed(content) is None


@pytest.mark.parametrize("type_", ["groupchat", "headline"])
def test_news_and_rooms_are_passed_over(type_: str) -> None:
    assert typed("<body>cancel all</body>", f"type='{type_}'") is None


def test_of_the_same_in_several_languages_one_is_taken() -> None:
    found = typed("<body>cancel 1</body><body xml:lang='de'>cancel 2</body>")
    assert found == ("cancel 1", JUST_TEXT)


@pytest.mark.parametrize(
    ("body", "ranges", "text"),
    [
        ("> Job 12: 1 task\nexplain 12", [(0, 17)], "explain 12"),
        ("> 🐦🐦\nexplain 12", [(0, 5)], "explain 12"),
        ("Ada wrote:\n> it's done\njobs", [(0, 23)], "jobs"),
        ("a bc d", [(4, 5), (0, 2)], "bcd"),
        ("a bc d", [(0, 4), (2, 5)], "d"),
        ("jobs", [(2, 1), ("x", 2), (-1, 2), ("9" * 5000, 2), ("", "")], "jobs"),
        ("jobs", [(4, 99)], "jobs"),
        ("jobs", [(2, 99)], "jo"),
    ],
)
def test_what_stands_in_for_something_else_is_left_out(
    body: str, ranges: list[tuple[object, object]], text: str
) -> None:
    escaped = body.replace(">", "&gt;")
    content = f"<body>{escaped}</body>{REPLY}{fallback('urn:xmpp:reply:0', *ranges)}"
    assert typed(content) == (text, JUST_TEXT)


def test_a_reply_with_nothing_but_the_quotation_has_no_words() -> None:
    assert kind(f"<body>&gt; Job 12\n</body>{REPLY}{fallback('urn:xmpp:reply:0', (0, 9))}") is (
        ChatKind.SUBSTITUTE
    )
    assert kind("<body>a file</body>" + fallback("urn:xmpp:sfs:0")) is ChatKind.SUBSTITUTE
    subject = "<fallback xmlns='urn:xmpp:fallback:0' for='x'><subject/></fallback>"
    assert typed("<body>jobs</body>" + subject) == ("jobs", JUST_TEXT)


@pytest.mark.parametrize(
    "content",
    [
        f"<body>{SENTENCE}</body><encrypted xmlns='{OMEMO}'><header sid='1'/>"
        "<payload>x</payload></encrypted>",
        "<encrypted xmlns='urn:xmpp:omemo:2'><header sid='1'/><payload>x</payload></encrypted>",
        f"<body>{SENTENCE}</body><encryption xmlns='urn:xmpp:eme:0' namespace='{OMEMO}'/>",
        "<body>This message is encrypted.</body><x xmlns='jabber:x:encrypted'>x</x>",
        "<openpgp xmlns='urn:xmpp:openpgp:0'>x</openpgp>",
        "<body>?OTRv23?\nada has requested an Off-the-Record conversation.</body>",
        "<body>?OTR:AAMD.</body>",
    ],
)
def test_an_encrypted_message_is_one_whatever_stands_in_for_it(content: str) -> None:
    assert kind(content) is ChatKind.ENCRYPTED


def test_a_correction_names_what_it_corrects() -> None:
    found = typed(
        "<body>jobs</body><replace xmlns='urn:xmpp:message-correct:0' id='m1'/>", "id='m2'"
    )
    assert found == ("jobs", ChatMarks(id="m2", corrects="m1"))


def test_a_message_may_be_taken_back() -> None:
    content = "<retract xmlns='urn:xmpp:message-retract:1' id='m1'/>"
    assert kind(content) is ChatKind.RETRACTION
    assert kind(content + "<body>/me retracted a message</body>") is ChatKind.RETRACTION


def test_what_nobody_sends_is_looked_at_no_further_than_a_bound() -> None:
    many = fallback("x", *[(n, n + 1) for n in range(50_000)]) * 3
    found = typed(f"<body>{'x' * 1_000}</body>{many}")
    assert found is not None
    assert found[0] == "x" * 900
    assert typed("<a/>" * 1_000 + "<body>jobs</body>") is None


def test_any_depth_is_passed_over() -> None:
    deep = "<a>" * 50_000 + "</a>" * 50_000
    assert typed(f"<body>jobs</body>{deep}") == ("jobs", JUST_TEXT)


def test_a_reply_as_slixmpp_quotes_it() -> None:
    xep_0428.stanza.register_plugins()
    xep_0461.stanza.register_plugins()
    message = Message()
    message["type"], message["id"], message["body"] = "chat", "m2", "explain 12"
    message["reply"]["id"] = "m1"
    message["reply"].add_quoted_fallback("Job 12: 1 task of echo '🐦'\nI tell you", "jobs")
    assert message["body"].startswith("> jobs:\n> Job 12")
    assert typed_in(message.xml) == ("explain 12", ChatMarks(id="m2"))


@pytest.mark.parametrize(
    ("stanza", "text", "marks"),
    [
        pytest.param(
            '<message id="7IBOhgVS" to="jobs@pool" type="chat"><body>status</body>'
            '<active xmlns="http://jabber.org/protocol/chatstates"/>'
            '<request xmlns="urn:xmpp:receipts"/>'
            '<replace id="RzZtHMf1" xmlns="urn:xmpp:message-correct:0"/></message>',
            "status",
            ChatMarks(id="7IBOhgVS", corrects="RzZtHMf1"),
            id="Profanity 0.13.1, /correct",
        ),
        pytest.param(
            '<message id="gzPs8FXV" to="jobs@pool" type="chat"><body>?OTR?v2? This user has '
            "requested an Off-the-Record private conversation. However, you do not have a plugin "
            "to support that. See http://otr.cypherpunks.ca/ for more information.</body>"
            '<active xmlns="http://jabber.org/protocol/chatstates"/>'
            '<private xmlns="urn:xmpp:carbons:2"/><no-copy xmlns="urn:xmpp:hints"/>'
            '<no-store xmlns="urn:xmpp:hints"/></message>',
            None,
            ChatMarks(ChatKind.ENCRYPTED, id="gzPs8FXV"),
            id="Profanity 0.13.1, /otr start",
        ),
        pytest.param(
            '<message type="chat" to="jobs@pool" id="131095200766">'
            "<body>&gt; said before: it&apos;s\njobs\nexplain 2?</body>"
            '<active xmlns="http://jabber.org/protocol/chatstates"></active></message>',
            "> said before: it's\njobs\nexplain 2?",
            ChatMarks(id="131095200766"),
            id="mcabber 1.1.2, /msay",
        ),
    ],
)
def test_messages_as_programs_have_sent_them(
    stanza: str, text: str | None, marks: ChatMarks
) -> None:
    found = typed_in(fromstring(stanza.replace("<message", "<message xmlns='jabber:client'")))
    assert found is not None
    assert found[1] == marks
    assert text in (None, found[0])
