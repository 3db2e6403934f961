"""What started this process: its rank, its node, the secret of the nodes."""
