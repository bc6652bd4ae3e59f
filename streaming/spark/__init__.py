"""Spark for any query of this project: session, blocks, shard keys, and the files of a checkpoint."""
