"""A run made visible: what it keeps to be looked at, and the page ``autodo report`` makes of it.

``collect`` writes the folder ``view`` of a run when training ends; everything else here reads
the run folder alone, so that a report needs neither the data nor the network.
"""
