"""The commands, a module each; thin. What they share stands in ``given`` and ``telling``."""
