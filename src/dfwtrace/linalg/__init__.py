"""Linear algebra without d×m arrays: low-rank matrices, Golub-Kahan, the gradient, its bound."""
