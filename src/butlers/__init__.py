"""A memory for long-running agents."""
