"""The observation XW: tasks whose loss is a function of the scores x_iᵀW."""
