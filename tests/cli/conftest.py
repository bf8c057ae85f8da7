"""Files that many tests of the command line read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.commands import done, flowers

import dfwtrace as dt


@pytest.fixture
def train(tmp_path: Path) -> Path:
    return flowers(tmp_path / "train.csv")


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the flowers."""
    folder = tmp_path_factory.mktemp("classifier")
    train = flowers(folder / "train.csv")
    done("fit", train, "--target", "species", "--radius", 8, "-o", folder / "model")
    return folder / "model"


@pytest.fixture(scope="session")
def sensors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Parquet files: six features, three targets."""
    folder = tmp_path_factory.mktemp("parquet") / "sensors"
    folder.mkdir()
    X, Y, _ = dt.datasets.make_multitask(n=200, d=6, m=3, rank=2, noise=0.1, random_state=0)
    for part, rows in enumerate(np.array_split(np.arange(200), 2)):
        columns = {f"x{j}": X[rows, j] for j in range(6)} | {f"y{j}": Y[rows, j] for j in range(3)}
        pq.write_table(pa.table(columns), folder / f"part-{part}.parquet")
    return folder


@pytest.fixture(scope="session")
def regressor(sensors: Path) -> Path:
    """A model of the sensors."""
    model = sensors.parent / "model"
    done("fit", sensors, "--target", "y*", "--radius", 1, "-o", model)
    return model
