"""A toolbox with two tools: one that only reads, and one that survives crashes of everything at every step.

    WINDLASS_TOKEN=$(cat .windlass/token) python orders.py
"""

from windlass import Context, StepUnknown, serve, tool

PRICES = {"tea": 4, "cake": 7}


@tool(effect="read")
def price(item: str) -> int:
    """The price of an item.

    Args:
        item: The name of the item, such as `tea`.
    """
    return PRICES[item]


@tool(effect="stepped", claims=["write order:{item}"])
async def order(item: str, count: int, ctx: Context) -> dict[str, object]:
    """Orders an item, waits for the payment, and sends it.

    Args:
        item: The name of the item.
        count: How many of it.
    """
    reserved = await ctx.step("reserve", reserve, item, count)
    await ctx.sleep("cool down", 0.2)
    key = await ctx.completion("payment")
    await ctx.step("invoice", invoice, reserved, key)
    paid = await ctx.wait("payment", timeout=3600)
    try:
        sent = await ctx.step("send", send, reserved, once=True)
    except StepUnknown:
        sent = "perhaps: this process died while it sent, and must not send twice"
    return {"reserved": reserved, "paid": paid, "sent": sent}


def reserve(item: str, count: int) -> str:
    """Where a shop would reserve the goods."""
    return f"{count} x {item}"


def invoice(reserved: str, key: str) -> None:
    """Where a shop would send an invoice with the key, by which the payment is reported."""
    print(f"{reserved}: windlass complete {key} --ok true", flush=True)


async def send(reserved: str) -> str:
    """Where a shop would send the goods, and must not do so twice."""
    return f"sent {reserved}"


if __name__ == "__main__":
    serve(price, order, toolbox="shop")
