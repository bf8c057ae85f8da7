"""The paper's evaluation: one script for each figure and table, run by ``python -m reproduction``.

A script has NAME, TITLE, ABOUT, KEYS (settings that identify a row of its folder) and CLAIMS.
`runs` returns the settings of what is to be measured, `measure` measures one of them, `group`
arranges the rows for `show`, which returns figures and tables, and for the claims.
"""
