"""How long autodo.audit takes and how much memory it needs.

    python benchmarks/audit_speed.py --points 50000 --width 512
    python benchmarks/audit_speed.py --points 1000000 --width 768 --map FOLDER

A cloud of points for each class, a fifth of the labels drawn at random, 1,000 trusted. With --map
the embeddings are written to a file in FOLDER first, mapped, and removed at the end. Prints
seconds (of the clock and of the processors), the largest resident size before and during the
audit (pages of the mapped file count as resident while they are in memory; anonymous
memory is told apart) and the AUC.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

import autodo

TRUSTED, CHUNK = 1000, 50_000


def resident() -> dict[str, float]:
    """GiB of this process in memory: in all, and what is not a page of a file."""
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    size = {key: int(fields[key].split()[0]) / 2**20 for key in ("VmRSS", "RssAnon")}
    return {"in all": size["VmRSS"], "anonymous": size["RssAnon"]}


class Peak(threading.Thread):
    """The largest ``resident`` while it runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest, self.done = resident(), threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.05):
            self.largest = {k: max(v, self.largest[k]) for k, v in resident().items()}


def fill(x: np.ndarray, true: np.ndarray, centres: np.ndarray, rng: np.random.Generator) -> None:
    for start in range(0, len(x), CHUNK):
        rows = slice(start, start + CHUNK)
        noise = rng.standard_normal((len(true[rows]), x.shape[1]), dtype=np.float32)
        x[rows] = centres[true[rows]] + noise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=50_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--spread", type=float, default=0.12, help="deviation of the centres")
    parser.add_argument("--map", type=Path, help="folder for a file to map the embeddings from")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    centres = (args.spread * rng.standard_normal((args.classes, args.width))).astype(np.float32)
    true = rng.integers(args.classes, size=args.points)
    right = rng.permutation(np.arange(TRUSTED) % args.classes)  # every class is trusted
    trusted = np.empty((TRUSTED, args.width), np.float32)
    fill(trusted, right, centres, rng)
    noisy = rng.random(args.points) < 0.2
    given = np.where(noisy, rng.integers(args.classes, size=args.points), true)

    shape = (args.points, args.width)
    with tempfile.TemporaryDirectory(dir=args.map) as folder:
        if args.map is None:
            x = np.empty(shape, np.float32)
            fill(x, true, centres, rng)
        else:
            file = Path(folder) / "embeddings.npy"
            x = np.lib.format.open_memmap(file, "w+", np.float32, shape)
            fill(x, true, centres, rng)
            x.flush()
            del x
            x = np.load(file, mmap_mode="r")
        before, peak = resident(), Peak()
        peak.start()
        start, used = time.perf_counter(), time.process_time()
        points = autodo.audit(x, given, trusted, right, progress=False)
        seconds, used = time.perf_counter() - start, time.process_time() - used
        peak.done.set()
        peak.join()
        del x
    auc = roc_auc_score(given != true, -points["label_score"].to_numpy())
    print(
        f"{args.points:,} x {args.width}, {torch.get_num_threads()} threads: {seconds:.1f} s, "
        f"{used:.1f} s of processor time"
    )
    for key, value in peak.largest.items():
        print(f"resident, {key}: {before[key]:.2f} GiB before, {value:.2f} GiB at the most")
    print(f"AUC {auc:.4f}")


if __name__ == "__main__":
    main()
