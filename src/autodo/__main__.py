"""``python -m autodo`` is the command ``autodo``."""

from autodo.cli import main

main()
