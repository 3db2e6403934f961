"""The papers' measurements repeated on this machine, with real processes: `make evaluation`."""
