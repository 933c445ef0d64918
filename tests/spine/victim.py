"""A process that goes on with a spine until a failure point kills it."""

import json
import sys
from pathlib import Path

from instance.spine.files import RunFiles
from instance.spine.manifest import Manifest
from instance.spine.spine import Spine
from tests.spine.model import SMALL, merge_all, save, table_of


def main(folder: Path) -> None:
    manifest = Manifest.from_json(json.loads((folder / "manifest.json").read_text()))
    spine = Spine.restore(RunFiles(folder), manifest, sizes=SMALL)
    for step in range(6, 60):
        spine.insert(table_of(spine.schema, [((number, "new"), step, 1) for number in range(step)]))
        merge_all(spine)
        save(spine)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
