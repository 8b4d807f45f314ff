"""The trusted examples that are nearest to a training example, in the features of the network."""

from __future__ import annotations

import numpy as np
from safetensors.numpy import load_file

from autodo.report.view import ViewFolder
from autodo.train.files import readable

NEAREST, OF_CLASS = 6, 4
"""How many are shown of all classes, and how many of the given and of the suggested one."""


class Similar:
    """Nearest neighbours among the trusted examples whose pictures can be shown.

    features: (n, K) of the training examples ``index`` (n,), ascending. trusted: (m, K) of those
    with the numbers ``trusted_index`` (m,) and labels (m,).
    """

    def __init__(
        self,
        index: np.ndarray,
        features: np.ndarray,
        trusted_index: np.ndarray,
        trusted: np.ndarray,
        labels: np.ndarray,
    ) -> None:
        self._index, self._features = index, features
        self._trusted_index, self._labels = trusted_index, labels
        self._trusted = np.asarray(trusted, np.float32)
        self._squares = np.square(self._trusted).sum(-1)

    @classmethod
    def open(cls, view: ViewFolder, labels: np.ndarray, shown: np.ndarray) -> Similar | None:
        """Of a run's view; ``labels`` and ``shown`` (M,): of every trusted example its label and
        whether there is a picture. None where no features were kept."""
        if not view.features.is_file():
            return None
        with readable(view.features):
            kept = load_file(view.features)
        usable = shown[kept["trusted_index"]]
        number = kept["trusted_index"][usable]
        return cls(
            kept["train_index"], kept["train"], number, kept["trusted"][usable], labels[number]
        )

    def nearest(self, index: int, given: int, suggested: int) -> dict[str, list[list[int]]] | None:
        """[number, label] of trusted examples, the nearest first: of all classes, of the given and
        of the suggested one. None if the features of the example were not kept.

        >>> two = np.array([[0.0], [9.0]])
        >>> near = Similar(np.array([4, 7]), two, np.arange(3), np.array([[8], [1], [0]]),
        ...                np.array([1, 0, 0])).nearest(7, 0, 1)
        >>> near["all"], near["given"], near["suggested"]
        ([[0, 1], [1, 0], [2, 0]], [[1, 0], [2, 0]], [[0, 1]])
        """
        place = int(np.searchsorted(self._index, index))
        if place >= len(self._index) or self._index[place] != index:
            return None
        point = self._features[place].astype(np.float32)
        order = np.argsort(self._squares - 2 * (self._trusted @ point), kind="stable")
        labels = self._labels[order]
        rows = {
            "all": order[:NEAREST],
            "given": order[labels == given][:OF_CLASS],
            "suggested": order[labels == suggested][:OF_CLASS],
        }
        return {
            name: [[int(self._trusted_index[k]), int(self._labels[k])] for k in found]
            for name, found in rows.items()
        }
