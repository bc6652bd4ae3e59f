"""The label `service` of metrics: a bounded number of names, so that services cannot fill a time-series database."""

# More than most instances have. Each label is one time series of each metric.
MOST = 100
OTHER = "other"


class ServiceLabels:
    """The services that have a label of their own: the first that were seen. All others share OTHER."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def of(self, service: str) -> str:
        """Returns the label of a service; gives it one of its own if there is room."""
        if len(self._names) < MOST:
            self._names.add(service)
        return self.known(service)

    def known(self, service: str) -> str:
        """Returns the label of a service that may not exist, because a program has invented its name."""
        return service if service in self._names else OTHER
