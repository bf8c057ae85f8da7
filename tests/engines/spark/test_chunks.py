"""Shards on their way to and from Spark's storage, without Spark."""

from __future__ import annotations

import pickle

import numpy as np
import scipy.sparse as sp

from dfwtrace.data.shards import RowBlocks, Shard, split_rows
from dfwtrace.engines.spark.mapreduce import from_chunks, to_chunks


def test_a_shard_keeps_its_layout_on_the_way() -> None:
    X = np.arange(60_000.0).reshape(300, 200)
    for layout in (X, sp.csr_array(X)):
        for shard in split_rows(layout, np.arange(300.0), 3):
            there: Shard = from_chunks(to_chunks(shard))
            assert there.digest() == shard.digest()
            if sp.issparse(layout):
                assert there.X.indices.dtype == shard.X.indices.dtype
                continue
            assert there.X.flags.writeable
            assert there.X.flags.c_contiguous


def test_blocks_of_rows_travel_once() -> None:
    X = np.asfortranarray(np.ones((5000, 10)))
    pickled = pickle.dumps(RowBlocks(X, rows=1000))
    assert len(pickled) < 1.1 * X.nbytes
    there = pickle.loads(pickled)
    for block, same in zip(there, RowBlocks(X, rows=1000), strict=True):
        assert block.rows == same.rows
        assert block.X.strides == same.X.strides
