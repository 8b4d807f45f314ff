"""``autodo review``: a local page on which a person judges the labels that look wrong.

``session`` is what the page can ask for and do, ``server`` carries it over HTTP to this machine
alone, and ``log`` writes every decision before it is answered.
"""
