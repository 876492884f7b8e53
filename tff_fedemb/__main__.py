"""The command `tff-fedemb`, also as `python -m tff_fedemb`.

The programs stand above the library, so this door knows none of them.
"""

import importlib


def main() -> None:
  """Runs the program that the first argument names."""
  importlib.import_module("binaries.command").main()


if __name__ == "__main__":
  main()
