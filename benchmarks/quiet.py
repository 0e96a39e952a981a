"""Imported by every benchmark before torch: threads that wait do not spin, as in the CLI.

Spinning threads make everything tens of times slower as soon as another program wants a core. Processes that a
benchmark starts inherit the setting.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
