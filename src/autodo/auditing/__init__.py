"""Wrong labels from frozen features: AutoDO with a linear head and no network to train.

``heads`` fits the heads, ``belief`` makes of them what is believed of each point, ``worth`` has the
hypergradient at the head, ``audit`` puts them together; ``embeddings`` and ``files`` read.
"""
