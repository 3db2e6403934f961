"""What all loaders have in common: a job, its options, epochs, state and reports."""
