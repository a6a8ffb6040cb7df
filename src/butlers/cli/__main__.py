"""`python -m butlers.cli` is `butlers`."""

from butlers.cli import main

main()
