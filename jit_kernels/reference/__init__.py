"""The same operators in plain NumPy: the oracle of the tests."""
