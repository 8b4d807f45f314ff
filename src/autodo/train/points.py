"""The points table: what was learned of every training example, one row each.

Column names are cleanlab's where it has one (given_label, label_score, is_label_issue).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import torch

from autodo.hyper.dataset_model import DatasetModel


def points_table(
    data: DatasetModel, count: int, ids: Sequence[str], class_names: Sequence[str]
) -> pa.Table:
    """Rows of the first ``count`` points of ``data``, which are the training examples."""
    index = torch.arange(count, device=data.labels.device)
    given = data.labels[:count]
    q = data.soft_labels(index)
    suggested = q.argmax(-1)
    # A tie is no evidence against the given label.
    score = q.gather(-1, given[:, None])[:, 0]
    suggested = torch.where(score >= q.amax(-1), given, suggested)
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
