"""The modules that the tests of the engine's instructions share lie beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
