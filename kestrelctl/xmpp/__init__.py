"""Sessions with an XMPP server, and a private server for a local pool."""
