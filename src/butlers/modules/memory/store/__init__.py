"""Everything that is kept: one function, one statement; the statements are in sql/."""
