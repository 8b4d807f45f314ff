"""Embeddings with right labels, for audits of labels that are made wrong (``audit.py made``).

    python benchmarks/audit_embeddings.py glosses --wordnet WORDNET --model MODEL --out glosses.npz
    python benchmarks/audit_embeddings.py pixels --set fashion_mnist --data-dir DATA --out out.npz

glosses: what WordNet says a word means, its class the lexicographer's file that the word stands in
(animals, plants, verbs of motion ...; those with fewer than --least are left out), by a sentence
network such as all-MiniLM-L6-v2. WORDNET is the folder of data.noun, data.verb, data.adj and
data.adv; MODEL that of the network, in the Hugging Face layout (pip install transformers).
pixels: the images of a training set as they are.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from autodo.data.sources import load

PARTS = ("noun", "verb", "adj", "adv")
BATCH = 256


def read_glosses(wordnet: Path) -> list[tuple[int, str]]:
    """(number of the lexicographer's file, meaning without its examples) of every synset."""
    found = []
    for part in PARTS:
        for line in (wordnet / f"data.{part}").read_text().splitlines():
            if not line.startswith(" "):  # the licence
                about, _, gloss = line.partition("|")
                found.append((int(about.split()[1]), gloss.split('; "')[0].strip()))
    return found


def glosses(args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    every = read_glosses(args.wordnet)
    counts = Counter(kind for kind, _ in every)
    kinds = sorted(kind for kind, count in counts.items() if count >= args.least)
    kept = [(kinds.index(kind), text) for kind, text in every if kind in kinds]
    order = np.random.default_rng(args.seed).permutation(len(kept))[: args.points]
    chosen = [kept[i] for i in order]
    embeddings = embed([text for _, text in chosen], args.model)
    return embeddings, np.array([kind for kind, _ in chosen])


@torch.no_grad()
def embed(texts: list[str], folder: Path) -> np.ndarray:
    """(N, D) means over the tokens of each text, of length 1."""
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(folder)
    network = AutoModel.from_pretrained(folder, use_safetensors=True).eval()
    by_length = torch.tensor([len(text) for text in texts]).argsort()
    found = np.empty((len(texts), network.config.hidden_size), np.float32)
    start = time.perf_counter()
    for k, part in enumerate(by_length.split(BATCH)):
        given = tokens([texts[i] for i in part], padding=True, truncation=True, return_tensors="pt")
        mask = given["attention_mask"][..., None]
        last = network(**given).last_hidden_state
        mean = (last * mask).sum(1) / mask.sum(1)
        found[part] = torch.nn.functional.normalize(mean, dim=-1)
        if k % 20 == 19:
            print(f"{(k + 1) * BATCH:,} texts, {time.perf_counter() - start:.0f} s", flush=True)
    return found


def pixels(args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    data = load(args.set, "train", data_dir=args.data_dir)
    return data.images.flatten(1).numpy().astype(np.float32), data.labels.numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = parser.add_subparsers(required=True)
    texts = kinds.add_parser("glosses")
    texts.add_argument("--wordnet", type=Path, required=True)
    texts.add_argument("--model", type=Path, required=True)
    texts.add_argument("--least", type=int, default=200, help="glosses of a class that is kept")
    texts.add_argument("--points", type=int, default=24_000)
    texts.add_argument("--seed", type=int, default=0)
    texts.set_defaults(make=glosses)
    images = kinds.add_parser("pixels")
    images.add_argument("--set", default="fashion_mnist")
    images.add_argument("--data-dir", type=Path)
    images.set_defaults(make=pixels)
    for one in (texts, images):
        one.add_argument("--out", type=Path, required=True, help=".npz")
    args = parser.parse_args()
    embeddings, labels = args.make(args)
    classes = len(np.unique(labels))
    print(f"{len(labels):,} points of {classes} classes, {embeddings.shape[1]} numbers each")
    np.savez(args.out, embeddings=embeddings, labels=labels)


if __name__ == "__main__":
    main()
