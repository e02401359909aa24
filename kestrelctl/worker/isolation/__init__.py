"""The ladder of isolation: what stands between a task, the other tasks and the worker."""
