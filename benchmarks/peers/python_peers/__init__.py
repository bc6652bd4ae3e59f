"""Code that the Python peers share: the rules, the command line, the count of processed events."""
