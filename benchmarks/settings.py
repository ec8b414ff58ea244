"""The project's settings with the benchmark's Flow and the hand-written view added; nothing else differs."""

from config.settings import *  # noqa: F403
from config.settings import INSTALLED_APPS

INSTALLED_APPS += ["benchmarks", "benchmarks.peers.drf_view"]
ROOT_URLCONF = "benchmarks.urls"
