"""Long-running agents that remember."""
