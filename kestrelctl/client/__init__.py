"""A pool for programs in Python: `client.pool` for asyncio, `client.blocking` for all others."""
