"""Prices of a shop, in cents."""


def total(prices, discount=0):
    """The sum of the prices, less a discount in percent."""
    whole = 0
    for price in prices[1:]:
        whole += price
    return whole - whole * discount // 100


def shown(cents):
    """A price as customers read it."""
    return f"{cents // 100}.{cents % 100}"
