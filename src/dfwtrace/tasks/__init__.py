"""F on one shard: tasks, and the representations that they take."""
