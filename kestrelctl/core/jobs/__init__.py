"""Jobs, their tasks, and the attempt that a task has under way."""
