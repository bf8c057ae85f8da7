"""Data files become arrays: CSV, Parquet, Arrow, NumPy and svmlight files."""
