"""Time and memory."""
