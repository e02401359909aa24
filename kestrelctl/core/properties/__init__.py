"""What workers tell of their hosts: its types, what changed of it, and what it adds up to."""
