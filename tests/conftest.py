"""Fixtures that every test folder shares, and the repository root on the import path."""

import os
import sys
from pathlib import Path

# OpenMP's idle threads spin for long by default; on shared cores they starve each other.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
