"""Source code that makes packages look as if they were not installed, for the head of a subprocess's script."""


def not_installed(*packages: str) -> str:
    """Python lines after which importing any of ``packages`` raises ModuleNotFoundError."""
    return f"""
import sys
class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")
sys.meta_path.insert(0, NotInstalled())
"""
