"""The paper's experiments: every cell of its tables, run by its protocol, beside its number.

cells: what was run and what it gave. protocol: how (appendix A). sets: on what. runner: one cell,
seed by seed. analysis, results: what was measured. tables, figures: what a person reads.
"""
