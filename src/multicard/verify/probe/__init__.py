"""What runs inside the launched processes: it watches the user's script from within, and changes none of its files.

Imports torch; nothing outside this package and the launched processes may import it.
"""
