"""How long steps take, and how near that is to what the machine can do (``autodo bench``)."""
