"""Generator of all pages of docs/reference that come from the code (`make docs`)."""

import sys

import cli_reference
import config_reference
import schema_reference


def main() -> int:
    """Write each page."""
    for source in (config_reference, cli_reference):
        source.PAGE.write_text(source.render(), encoding="utf-8")
        print(f"written: {source.PAGE}")
    return schema_reference.main()


if __name__ == "__main__":
    sys.exit(main())
