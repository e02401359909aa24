"""Shows the output of commands."""
