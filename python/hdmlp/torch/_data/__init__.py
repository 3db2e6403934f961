"""Datasets of torch: their items, and what is made of them."""
