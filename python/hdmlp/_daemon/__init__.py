"""The daemon of this node: where it listens, how it is started, asked, and found dead."""
