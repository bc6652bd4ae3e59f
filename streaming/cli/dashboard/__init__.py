"""The web page that shows what happens and why: `queue-activation dashboard`."""
