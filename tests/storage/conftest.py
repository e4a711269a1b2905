import sys
from pathlib import Path

# Test modules are imported by file (importlib mode); their helpers are found beside them.
sys.path.insert(0, str(Path(__file__).parent))
