"""The paper's evaluation: one module for each figure and table, run by ``dfwtrace reproduce``.

A module has the names of `dfwtrace.experiments.exhibits.Experiment`: what is to be measured, what
the measured rows show, and what became of the paper's claims.
"""
