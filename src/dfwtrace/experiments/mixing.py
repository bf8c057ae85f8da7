"""Whether the rows of a folder belong together: a figure compares what was measured alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dfwtrace.experiments.exhibits import Experiment, Setting
from dfwtrace.experiments.runs import Row, of_experiment

Settings = Mapping[str, Any]

#: What all rows of a folder have in common with the runs of its scale and engine.
_COMMON = ("scale", "engine", "n", "epochs")


class MixtureError(ValueError):
    """What a folder holds that does not belong there, as the end of a sentence."""


def refuse_mixture(
    experiments: Sequence[Experiment],
    setting: Setting,
    rows: Sequence[Row],
    measured: Collection[str] = (),
) -> None:
    """Refuse rows that were not measured as this setting has it.

    Parameters
    ----------
    experiments : sequence of Experiment
    setting : Setting
    rows : sequence of Row
    measured : collection of str
        The experiments that will get new rows, beside which the old ones must be alike in all that
        they depend on. What is only drawn may come from other data or another machine.

    Raises
    ------
    MixtureError
    """
    for experiment in experiments:
        own = of_experiment(rows, experiment.NAME)
        runs = [run.settings for run in experiment.runs(setting)] if own else []
        wanted = {_place(experiment, settings): settings for settings in runs}
        seen = set()
        for row in own:
            found = row["settings"]
            for name in _COMMON:
                _compare(experiment, name, found, runs)
            place = _place(experiment, found)
            if place in seen:
                told = ", ".join(str(part) for part in place if part is not None)
                raise MixtureError(f"two rows of {experiment.NAME} for {told}")
            seen.add(place)
            if experiment.NAME in measured and place in wanted:
                for name in sorted({*found, *wanted[place]}):
                    _compare(experiment, name, found, [wanted[place]])


def _compare(
    experiment: Experiment, name: str, found: Settings, wanted: Sequence[Settings]
) -> None:
    values = [settings.get(name) for settings in wanted]
    if found.get(name) not in values:
        told = " or ".join(dict.fromkeys(str(value) for value in values if value is not None))
        raise MixtureError(
            f"rows of {experiment.NAME} with {name} {found.get(name)}, not {told or 'without'}"
        )


def _place(experiment: Experiment, settings: Settings) -> tuple[Any, ...]:
    return tuple(settings.get(name) for name in experiment.KEYS)
