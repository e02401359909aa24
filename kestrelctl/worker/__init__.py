"""The agent on a machine: execution, isolation, spool, resource discovery."""
