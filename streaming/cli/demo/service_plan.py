"""The services of the demo of services, and the messages between them."""

from dataclasses import dataclass

SHOP = "shop"
NORTH, SOUTH = "stock_north", "stock_south"
# The route of the shop's database to the stock.
ROUTE = "ToStock"


@dataclass(frozen=True)
class DemoService:
    """A service of the demo.

    Attributes:
        database: The database of the service.
        name: The name of the service.
        queue: The queue that gets the messages.
        program: The program that reads the queue, of `service_readers`.
    """

    database: str
    name: str
    queue: str
    program: str


ORDERS = DemoService(SHOP, "//shop/orders", "answers", "shop")
STOCKS = {
    NORTH: DemoService(NORTH, "//stock/reserve", "north", "clerk"),
    SOUTH: DemoService(SOUTH, "//stock/reserve", "south", "clerk"),
}
STOCK = STOCKS[NORTH].name
# It is created while messages for it are held.
INVOICES = DemoService(SHOP, "//shop/invoices", "invoices", "clerk")

# The type of the last message of a conversation: the clerk answers it, and ends the conversation.
LAST = "//shop/last"
# An answer is this text, and the message that it answers.
ANSWER = b"done: "
# The message that the shop sends when a timer is due; the last message of its conversation.
REMINDER = b"reminder"
