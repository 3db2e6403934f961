"""Worker processes, for what is left to Python."""
