"""Inputs of the kind that packages make for their models, where random numbers would be none."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Inputs = dict[str, npt.NDArray[Any]]


def _generator() -> np.random.Generator:
    return np.random.default_rng(0)


def bytes_of_a_file() -> Inputs:
    """The first and last bytes of a file, and 256 where it is shorter than that."""
    numbers = _generator().integers(0, 256, (1, 2048), np.int32)
    numbers[0, 600:1024] = numbers[0, 1024:1448] = (
        256  # nothing more at the beginning, nor before the end
    )
    return {"bytes": numbers}


def singing() -> Inputs:
    """A tone of 220 Hz with some noise, and the limits of a voice."""
    tone = np.sin(np.arange(485376) * (2 * np.pi * 220 / 16000))
    noise = _generator().normal(0, 0.01, tone.shape)
    limits = {"fmin": np.float32(46.875), "fmax": np.float32(2093.75)}
    return {
        "audio": np.float32(tone + noise)[None],
        **{k: np.asarray(v) for k, v in limits.items()},
    }


def name() -> Inputs:
    """Numbers of ten letters, padded to twelve."""
    return {
        "src": _generator().integers(4, 40, (1, 12)),
        "src_mask": np.arange(12)[None] < 10,
    }


def characters(letters: str, kinds: str, others: str = "", rows: int = 40) -> Inputs:
    """Numbers of letters and of their kinds as floats, a window of 21 around each."""
    generator = _generator()
    found = {
        letters: generator.integers(0, 178, (rows, 21)).astype(np.float32),
        kinds: generator.integers(0, 12, (rows, 21)).astype(np.float32),
    }
    return found | ({others: generator.random((rows, 21), np.float32)} if others else {})


def thai_word() -> Inputs:
    """Numbers of letters, and how many there are."""
    return {
        "input_tensor": _generator().integers(3, 70, (1, 10)),
        "input_lengths": np.array([10], np.int32),
    }


def sentence() -> Inputs:
    """Numbers of characters, and how many there are."""
    return {"token_ids": _generator().integers(0, 20000, (1, 20)), "length": np.array([20])}


def word() -> Inputs:
    """Letters, one of 59 hot in each."""
    return {"lstm_input": np.eye(59, dtype=np.float32)[_generator().integers(0, 59, (1, 12))]}


def protein() -> Inputs:
    """Atoms, edges between them and residues, as the package makes them up for its own export."""
    generator = _generator()
    atoms, edges, residues = 60, 120, 6
    floats = {
        "bfactor": generator.random(atoms) * 50,
        "edge_dist": generator.random(edges) * 6 + 1,
        "same_residue": generator.integers(0, 2, edges),
        "residue_geometry": generator.normal(size=(residues, 52)),
        "target_environment": generator.normal(size=(residues, 6, 15)),
        "temperature_feature": np.zeros((residues, 1)),
        "target_atom_rsasa": generator.random((residues, 6)),
        "pos": generator.normal(size=(atoms, 3)) * 5,
        "node_normal": np.zeros((atoms, 3)),
        "is_hbond": np.zeros(edges),
        "hb_cos": np.zeros(edges),
    }
    return {
        "element": generator.integers(0, 5, atoms),
        "amino_acid": generator.integers(0, 20, atoms),
        "atom_role": generator.integers(0, 10, atoms),
        "edge_index": generator.integers(0, atoms, (2, edges)),
        "seq_sep": generator.integers(0, 32, edges),
        "target_indices": np.repeat(np.arange(residues)[:, None] * 10, 6, axis=1),
        "target_mask": np.ones((residues, 6), bool),
        "residue_types": generator.integers(0, 20, residues),
        **{name: values.astype(np.float32) for name, values in floats.items()},
    }


def molecules() -> Inputs:
    """Two rings of twelve atoms, each with a bond across, in both directions."""
    generator = _generator()
    ring = [(at, (at + 1) % 12) for at in range(12)] + [(0, 6)]
    bonds = np.array([(a + 12 * m, b + 12 * m) for m in range(2) for a, b in ring]).T
    widths = {"feat": 85, "laplacian_eigvec": 8, "laplacian_eigval": 8, "rw_return_probs": 16}
    return {
        **{name: generator.random((24, width), np.float32) for name, width in widths.items()},
        "edge_feat": generator.random((52, 13), np.float32),
        "edge_index": np.concatenate([bonds, bonds[::-1]], axis=1),
        "batch": np.repeat(np.arange(2), 12),
        "graph_slots": np.zeros(2, np.float32),
    }
