"""Datasets that are lists of records: ranges of files, with keys and labels."""
