"""The hooks of agents: memories at the start of a session, an episode of each turn or of the whole session."""
