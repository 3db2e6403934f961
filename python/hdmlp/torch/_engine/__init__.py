"""What delivers the batches of a loader of torch: the daemon, or this process."""
