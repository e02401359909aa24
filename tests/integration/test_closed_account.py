"""An account that is deleted at a real server while its owner is on the way in."""

from __future__ import annotations

import pytest
from half_login import BIND, log_in_by_half

from kestrelctl.xmpp.prosody import PrivateServer


@pytest.mark.parametrize("host", ["users_domain", "workers_domain"])
async def test_who_logged_in_before_the_account_was_deleted_gets_no_session(
    private_server: PrivateServer, host: str
) -> None:
    domain = getattr(private_server, host)
    leaver, stayer = f"leaver@{domain}", f"stayer@{domain}"
    logins = {}
    for jid in (leaver, stayer):
        password = private_server.add_account(jid)
        logins[jid] = await log_in_by_half(private_server.client_port, jid, password)
    [file] = private_server.directory.rglob("leaver.dat")
    file.unlink()
    refused = await logins[leaver].say(BIND, "</iq>")
    assert "not-authorized" in refused
    assert "Account deleted" in refused
    assert f"{stayer}/" in await logins[stayer].say(BIND, "</iq>")
    for login in logins.values():
        login.close()
