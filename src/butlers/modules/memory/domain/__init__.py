"""What is true of memories, without a database, a clock or a log."""
