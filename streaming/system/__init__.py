"""What this machine offers: processes, signals, Java, files, logs."""
