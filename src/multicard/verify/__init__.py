"""Proof by running: the original on one process, the migrated script on several, and both compared.

Reading code can say that a migration looks right.  Only running both can say that it trains the same.
"""
