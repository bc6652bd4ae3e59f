"""Conversations: endpoints, the order of their messages, and what is held until it can go. Pure; time is passed in."""
