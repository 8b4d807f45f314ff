"""The bilevel loop and everything around it: hyper steps, checkpoints, metrics, devices."""
