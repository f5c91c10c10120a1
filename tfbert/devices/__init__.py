"""The process and the machines it computes on."""
