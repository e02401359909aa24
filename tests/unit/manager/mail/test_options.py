"""Which server takes mail to users, as the manager's command line says it."""

from __future__ import annotations

import pytest
from cli_fake_pool import FakePool, run

from kestrelctl.errors import UsageError
from kestrelctl.manager import daemon
from kestrelctl.manager.mail.server import SmtpTls, parse_server
from kestrelctl.manager.options import ManagerOptions


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mail.example.org", ("mail.example.org", None)),
        ("mail:2525", ("mail", 2525)),
        ("[::1]", ("::1", None)),
        ("[::1]:25", ("::1", 25)),
    ],
)
def test_a_server_is_a_host_and_perhaps_a_port(text: str, found: tuple[str, int | None]) -> None:
    assert parse_server(text) == found


@pytest.mark.parametrize(
    "text", ["", ":25", "mail:", "mail:0", "mail:65536", "mail:x", "[::1", "::1"]
)
def test_what_is_no_server_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no server"):
        parse_server(text)


class TestOptions:
    @pytest.fixture
    def started(self, monkeypatch: pytest.MonkeyPatch) -> list[ManagerOptions]:
        found: list[ManagerOptions] = []
        monkeypatch.setattr(daemon, "run", lambda options, _: found.append(options))
        return found

    def start(self, *words: str) -> str:
        common = ("--domain", "pool", "--secret-file", "s", "--data-dir", "d")
        return run(FakePool(), "manager", "run", *common, *words).stderr

    def test_mail_is_private_unless_the_server_is_here(self, started: list[ManagerOptions]) -> None:
        sender = ("--mail-from", "kestrel@pool.org")
        for words in (
            (),
            ("--smtp", "localhost:2525", *sender),
            ("--smtp", "mail.example.org", *sender),
            ("--smtp", "mail.example.org", "--smtp-tls", "tls", *sender),
        ):
            assert self.start(*words) == ""
        found = [options.mail and (options.mail.tls, options.mail.port) for options in started]
        assert found == [
            None, (SmtpTls.NONE, 2525), (SmtpTls.STARTTLS, None), (SmtpTls.TLS, None),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("--smtp", ""), "--smtp is empty"),
            (("--smtp", "mail"), "mail comes from somebody"),
            (("--smtp", "mail", "--mail-from", "a@b.org\nBcc: c@d.org"), "no plain address"),
            (("--mail-from", "a@b.org"), "there is no server for mail"),
            (("--smtp", "mail", "--mail-from", "a@b.org", "--smtp-user", "u"), "belong together"),
            (
                ("--smtp", "mail", "--mail-from", "a@b.org", "--smtp-user", "u",
                 "--smtp-password-file", "p", "--smtp-tls", "none"),
                "in the clear",
            ),
        ],
    )  # fmt: skip
    def test_what_does_not_go_together_is_refused(
        self, started: list[ManagerOptions], words: tuple[str, ...], says: str
    ) -> None:
        assert says in self.start(*words)
        assert started == []
