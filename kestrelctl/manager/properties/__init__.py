"""What workers tell of their hosts: it is kept, matched by, and added up."""
