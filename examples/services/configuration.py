"""Creates missing routes (dynamic routing): the service SQL/ServiceBroker/BrokerConfiguration, as a reader program.

Each message asks for a route to a service. The program looks the service's address up in a JSON file,
{"SERVICE": "ADDRESS"}, creates a route that lives for an hour, and ends the conversation. If the file does not have the
service, the program ends the conversation with an error.

usage: python examples/services/configuration.py ADDRESSES [QUEUE]
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

from producers import QueueReader, UserError

servers = os.environ.get("QUEUE_ACTIVATION_BOOTSTRAP_SERVERS", "localhost:9092")
prefix = os.environ.get("QUEUE_ACTIVATION_TOPIC_PREFIX", "")
try:
    addresses = json.loads(Path(sys.argv[1]).read_text())
except (IndexError, OSError, ValueError) as error:
    sys.exit(f"error: {error}\nusage: python {sys.argv[0]} ADDRESSES [QUEUE], where ADDRESSES is a JSON file")
queue = sys.argv[2] if len(sys.argv) > 2 else "configuration"


def tell(database, service, address):
    """Creates a route in a database, or renews an expired route. Returns whether a command succeeded."""
    what = ["--database", database, "--address", address, "--lifetime", "1h"]
    kafka = ["--bootstrap-servers", servers, "--topic-prefix", prefix]
    name = f"to {service}"[:128]
    create = ["queue-activation", "route", "create", name, "--service", service, *what, *kafka]
    alter = ["queue-activation", "route", "alter", name, *what, *kafka]
    return any(subprocess.run(command, check=False).returncode == 0 for command in (create, alter))


try:
    # Ctrl-C ends the program; what it has not committed comes again.
    with suppress(KeyboardInterrupt), QueueReader(servers, queue, topic_prefix=prefix) as reader:
        while not reader.has_found_nothing:
            with reader.receive(max_messages=1, timeout=5.0) as messages:
                for message in messages:
                    if message.kind != "MESSAGE":
                        message.conversation.end()
                        continue
                    service = ElementTree.fromstring(message.value).findtext("{*}SERVICE_NAME")  # noqa: S314  (the router's)
                    address = addresses.get(service)
                    if address is not None and tell(message.conversation.database, service, address):
                        print(f"told the route to {service}: {address}", flush=True)
                        message.conversation.end()
                    else:
                        message.conversation.end_with_error(1, f"there is no address of {service!r}")
except UserError as error:  # Kafka cannot be reached, the queue has no topic ...: the message says what to do
    sys.exit(f"error: {error}")
