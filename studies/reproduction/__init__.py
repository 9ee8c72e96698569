"""The paper's experiments and those of the applications."""
