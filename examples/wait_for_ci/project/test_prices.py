import unittest

import prices


class Prices(unittest.TestCase):
    def test_cheapest(self):
        assert prices.cheapest([3, 1, 2]) == 1

    def test_total(self):
        assert prices.total([3, 1, 2]) == 6
