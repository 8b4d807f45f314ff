"""The points table: what was learned of every training example, one row each.

Column names are cleanlab's where it has one (given_label, label_score, is_label_issue).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import torch

from autodo.hyper.dataset_model import DatasetModel
from autodo.hyper.table import PART


def points_table(
    data: DatasetModel, count: int, ids: Sequence[str], class_names: Sequence[str]
) -> pa.Table:
    """Rows of the first ``count`` points of ``data``, which are the training examples."""
    index = torch.arange(count, device=data.labels.device)
    given = data.labels[:count]
    scores, suggestions = [], []
    for part, y in zip(index.split(PART), given.split(PART), strict=True):
        q = data.soft_labels(part)
        scores.append(q.gather(-1, y[:, None])[:, 0])
        # A tie is no evidence against the given label.
        suggestions.append(torch.where(scores[-1] >= q.amax(-1), y, q.argmax(-1)))
    score, suggested = torch.cat(scores), torch.cat(suggestions)
    columns: dict[str, pa.Array] = {
        "index": pa.array(range(count), pa.int64()),
        "id": pa.array(list(ids), pa.string()),
        "given_label": pa.array(given.cpu().numpy()),
        "suggested_label": pa.array(suggested.cpu().numpy()),
        "label_score": pa.array(score.cpu().numpy()),
        "is_label_issue": pa.array((suggested != given).cpu().numpy()),
        "weight": pa.array(data.weights(index).cpu().numpy()),
    }
    if data.augmentation is not None:
        rows = data.table("augment").gather(index)
        for name, values in data.augmentation.describe(rows).items():
            columns[name] = pa.array(values.cpu().numpy())
    table = pa.table(columns)
    return table.replace_schema_metadata({"class_names": "\n".join(class_names)})
