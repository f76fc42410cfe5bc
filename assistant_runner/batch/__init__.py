"""Rows in, results out: resume, adaptive concurrency, budget."""
