"""Loads the hook of a command into a Python process, then the user's own module.

The command is ``hdmlp analyze`` or ``hdmlp learn``.

Its directory is first on ``PYTHONPATH``, so each Python process that the script's command starts
imports it at its start. It only waits for loaders to be imported, and changes nothing else.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys


def _chain() -> None:
    """Imports the ``sitecustomize`` that Python would have found without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    from hdmlp_analyze.channel import COMMAND

    importlib.import_module(f"hdmlp_{COMMAND}").install()
except Exception as error:  # the script must run as if this module were not there
    sys.stderr.write(f"hdmlp: cannot look into this process: {error!r}\n")
_chain()
