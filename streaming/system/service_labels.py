"""The label `service` of metrics: a bounded number of names, so that services cannot fill a time-series database."""

# More services than most instances have. Each label is one time series of each metric.
MOST = 100
OTHER = "other"


class ServiceLabels:
    """The services with separate labels: those that were seen first. All other services share OTHER."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def of(self, service: str) -> str:
        """Returns the label of a service. The service gets a separate label if there is room."""
        if len(self._names) < MOST:
            self._names.add(service)
        return self.known(service)

    def known(self, service: str) -> str:
        """Returns the label of a service that may not exist, because a program has invented its name."""
        return service if service in self._names else OTHER
