"""Killed fits, hostile files, small mistakes in equations: what is tried that should not happen."""
