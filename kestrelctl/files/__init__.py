"""Files of users: to the pool's file share and back, and many as one."""
