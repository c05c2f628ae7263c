import unittest

import prices


class Prices(unittest.TestCase):
    def test_total(self):
        self.assertEqual(prices.total([1, 2]), 3)

    def test_cheapest(self):
        self.assertEqual(prices.cheapest([1, 2]), 1)
