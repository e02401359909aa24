"""What pools of a flock decide: pure rules, without clock, network or chance of their own."""
