"""Whether the rows of a folder belong together: a figure compares what was measured alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dfwtrace.experiments.exhibits import Experiment, Setting
from dfwtrace.experiments.runs import Row, of_experiment

# Rows of another machine have other settings, too, and may be drawn; not so those of another scale.
_OF_A_SCALE = ("scale", "engine", "n", "epochs")


def refuse_mixture(
    experiments: Sequence[Experiment], setting: Setting, rows: Sequence[Row], drawn_only: bool
) -> None:
    """Refuse rows that stand where a run of this setting belongs, but were measured otherwise.

    Parameters
    ----------
    experiments : sequence of Experiment
    setting : Setting
    rows : sequence of Row
    drawn_only : bool
        Whether there will be no new rows beside them.

    Raises
    ------
    ValueError
        What the folder holds, as the end of a sentence.
    """
    for experiment in experiments:
        own = of_experiment(rows, experiment.NAME)
        places: dict[tuple[Any, ...], Mapping[str, Any]] = {}
        for row in own:
            place = _place(experiment, row["settings"])
            if place in places:
                raise ValueError(f"two rows of {experiment.NAME} for {_told(place)}")
            places[place] = row["settings"]
        for run in experiment.runs(setting) if own else []:
            found = places.get(_place(experiment, run.settings))
            if found is not None:
                _compare(experiment, found, run.settings, drawn_only)


def _compare(
    experiment: Experiment, found: Mapping[str, Any], wanted: Mapping[str, Any], drawn_only: bool
) -> None:
    for name in _OF_A_SCALE if drawn_only else sorted({*found, *wanted}):
        if found.get(name) != wanted.get(name):
            raise ValueError(
                f"rows of {experiment.NAME} with {name} {found.get(name)}, not {wanted.get(name)}"
            )


def _place(experiment: Experiment, settings: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(settings.get(name) for name in experiment.KEYS)


def _told(place: tuple[Any, ...]) -> str:
    return ", ".join(str(part) for part in place if part is not None)
