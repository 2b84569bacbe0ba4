"""What runs inside the launched processes: it watches the user's script from within, and changes no file.

Imports torch; nothing outside this package and the launched processes may import it.
"""
