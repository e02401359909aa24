"""The flock's shell: it carries messages and answers requests."""
