"""t-SNE of the features of the map, computed once and kept with the view."""

from __future__ import annotations

import numpy as np
import torch
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from autodo.report.view import ViewFolder, read_table
from autodo.train.files import atomic, readable

ITERATIONS = 500
"""Of gradient descent: for 5,000 points 15 s on one core, where 1,000 take 39 s."""


def project(features: np.ndarray, seed: int) -> np.ndarray:
    """(n, 2) positions of the rows of ``features`` (n, K), each axis scaled to [0, 1].

    >>> project(np.eye(2, 3), 0).tolist() in ([[0, 0.5], [1, 0.5]], [[1, 0.5], [0, 0.5]])
    True
    """
    if np.ptp(features, axis=0).max() == 0:
        return np.full((len(features), 2), 0.5, np.float32)
    if len(features) < 4:  # too few neighbours for t-SNE
        padded = np.pad(features, ((0, 0), (0, max(0, 2 - features.shape[1]))))
        xy = PCA(2).fit_transform(padded)
    else:
        perplexity = min(30.0, (len(features) - 1) / 3)
        xy = TSNE(
            2, init="pca", perplexity=perplexity, max_iter=ITERATIONS, random_state=seed
        ).fit_transform(features)
    spread = np.ptp(xy, axis=0)
    flat = spread <= 1e-9 * max(float(spread.max()), 1e-300)
    scaled = (xy - xy.min(0)) / np.where(flat, 1, spread)
    return np.where(flat, 0.5, scaled).astype(np.float32)


def load_projection(view: ViewFolder, seed: int) -> np.ndarray:
    """(n, 2) positions of the examples of the map; computed if this view has none yet."""
    if view.projection.is_file():
        with readable(view.projection, "remove that file: the next report makes it anew"):
            return load_file(view.projection)["xy"].numpy()
    xy = project(map_features(view), seed)
    with atomic(view.projection) as file:
        file.write(save_tensors({"xy": torch.from_numpy(xy).contiguous()}))
    return xy


def map_features(view: ViewFolder) -> np.ndarray:
    """(n, K) features of the examples of the map, float32."""
    with readable(view.features):
        kept = load_file(view.features)
    table = read_table(view.map)
    sets, index = np.asarray(table["set"]), np.asarray(table["index"])
    features = np.zeros((len(index), kept["train"].shape[1]), np.float32)
    for name in dict.fromkeys(sets.tolist()):
        rows = sets == name
        place = np.searchsorted(kept[f"{name}_index"].numpy(), index[rows])
        features[rows] = kept[name].numpy()[place]
    return features
