"""The stream of batches from the daemon, and the shared memory in which they lie."""
