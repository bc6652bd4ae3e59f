"""The local machine: processes, signals, Java, files and logs."""
