"""The form of the paper: a Spark job for each round."""
