import time
import unittest

from prices import shown, total


class Prices(unittest.TestCase):
    def test_a_price_is_shown_with_two_digits(self):
        self.assertEqual(shown(1205), "12.05")

    def test_all_prices_count(self):
        self.assertEqual(total([100, 250, 50]), 400)

    def test_the_discount_is_taken_off(self):
        time.sleep(1)  # As slow as real tests are.
        self.assertEqual(total([200, 300], discount=10), 450)
