"""The records that the programs read and write. Each module is for one family of topics."""
