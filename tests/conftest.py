"""Property tests draw the same examples in every run, so that a failure is a change.

``HYPOTHESIS_PROFILE=explore`` draws new ones.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
