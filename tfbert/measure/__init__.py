"""Clocks, arithmetic counted, profiles."""
