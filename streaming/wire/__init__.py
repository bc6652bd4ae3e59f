"""The records that are read and written, one module per family of topics."""
