"""A pytest plugin that plants one bug, in memory, before anything of the core is imported."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

from hypothesis import Phase, settings

from tests.mutants.catalogue import MUTANTS, Mutant

VARIABLE = "PLAINSONG_MUTANT"


class MutantLoader(importlib.machinery.SourceFileLoader):
    """Compiles a module from its source with the bug in it; reads and writes no bytecode."""

    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        if source.count(self._mutant.before) != 1:
            raise LookupError(f"mutant {self._mutant.name!r} does not fit {fullname} any more")
        mutated = source.replace(self._mutant.before, self._mutant.after)
        return compile(mutated, self.path, "exec")


class MutantFinder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        return importlib.util.spec_from_file_location(fullname, loader=MutantLoader(self._mutant, spec.origin))


# That a bug is caught is all that counts here; the smallest example of it would take most of the time.
settings.register_profile("mutant", phases=[Phase.explicit, Phase.generate])
settings.load_profile("mutant")

planted = next((mutant for mutant in MUTANTS if mutant.name == os.environ.get(VARIABLE)), None)
if planted is not None:
    assert planted.module not in sys.modules, "the core was imported before the bug could be planted"
    sys.meta_path.insert(0, MutantFinder(planted))
