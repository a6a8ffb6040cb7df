"""Pure logic of the memory module: no database, no clock, no log."""
