"""Orders: those known ahead, and those which samplers draw."""
