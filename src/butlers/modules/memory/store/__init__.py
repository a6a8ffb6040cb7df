"""All SQL of the memory module: one function for one statement; the statements are in sql/."""
