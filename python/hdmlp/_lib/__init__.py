"""What has nothing to do with daemons, jobs or batches: arguments, memory, frames, progress."""
