"""Decides from the brokers' answers whether one more reader of a consumer group that reports nothing would have work.

The observer stands in for the group's next reader: it says which work this reader would find if it joined now.
"""
