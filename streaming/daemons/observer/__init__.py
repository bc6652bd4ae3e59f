"""The observer: watches consumer groups that report nothing, and reports for them."""
