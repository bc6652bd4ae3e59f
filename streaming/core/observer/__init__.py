"""Consumer groups that report nothing: whether one more reader would have work, from what the brokers say of them.

The observer stands in for the group's next reader: it says what this reader would find if it joined now.
"""
