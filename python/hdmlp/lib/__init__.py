"""Where the thesis's program has its integrated transformations (thesis 4.4)."""
