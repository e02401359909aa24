"""How attempts are started, limited, watched and ended."""
