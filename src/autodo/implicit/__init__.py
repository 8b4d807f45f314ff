"""The hypergradient: closed form at the head, solvers, and the autograd route for any theta."""

from autodo.implicit.autograd import AutogradHypergradient, autograd_hypergradient
from autodo.implicit.head import HeadHypergradient, head_hypergradient
from autodo.implicit.solvers import ConjugateGradient, Identity, Neumann, Solution, Solver

__all__ = [
    "AutogradHypergradient",
    "ConjugateGradient",
    "HeadHypergradient",
    "Identity",
    "Neumann",
    "Solution",
    "Solver",
    "autograd_hypergradient",
    "head_hypergradient",
]
