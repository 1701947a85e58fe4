from __future__ import annotations
from typing import Any

def make_channels(v): raise NotImplementedError
def make_pixels(v): raise NotImplementedError
def make_any(v): raise NotImplementedError
