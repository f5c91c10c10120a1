"""Clocks, counts of arithmetic, profiles."""
