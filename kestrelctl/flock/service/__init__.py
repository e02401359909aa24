"""A manager's part in the flock: it carries messages, keeps loans, and has guests run."""
