"""A pool on one machine: server, manager and workers under one supervisor."""
