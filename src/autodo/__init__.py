"""AutoDO: learn to augment, weigh and relabel every training example from a small trusted set."""

__version__ = "0.1.0"
