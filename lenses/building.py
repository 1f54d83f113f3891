"""One lock for all that may not happen while a model is built: transformers then changes torch's defaults.

It sets the default number format of the whole process and patches torch's initialisers; a gradient
method that made its step sizes in that moment would round them to the format of another model.
"""

from __future__ import annotations

import threading

BUILDING = threading.Lock()
