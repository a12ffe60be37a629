"""A bill of materials: what the lock holds, as CycloneDX 1.6 in JSON.

    python requirements/sbom.py dist/intarsia.cdx.json

Needs Python alone. Every package of the lock is a component with its version, its purl, the files
of the lock that name it, and the SHA-256 of every file that an index may serve for it; for torch
these are the builds of the package index. The same lock gives the same bytes.
"""

import json
import sys
import uuid
from pathlib import Path
from typing import Any

from lock import Pin, project, read_lock


def main() -> None:
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(bill(), indent=1) + "\n")
    print(f"{path}: {len(bill()['components'])} components")


def bill() -> dict[str, Any]:
    """The document."""
    about = project()["project"]
    components = [_component(pin) for pin in sorted(read_lock(), key=_place)]
    name, version = about["name"], about["version"]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": f"pkg:pypi/{name}@{version}",
                "name": name,
                "version": version,
                "description": about["description"],
                "licenses": [{"license": {"id": about["license"]}}],
                "purl": f"pkg:pypi/{name}@{version}",
            }
        },
        "components": components,
    }


def _component(pin: Pin) -> dict[str, Any]:
    purl = f"pkg:pypi/{pin.name}@{pin.version}"
    properties = [{"name": "intarsia:lock", "value": f"requirements/{pin.file}.txt"}]
    if pin.marker:
        properties.append({"name": "intarsia:marker", "value": pin.marker})
    digests = [digest.removeprefix("sha256:") for digest in pin.digests]
    return {
        "type": "library",
        "bom-ref": purl,
        "name": pin.name,
        "version": pin.version,
        "scope": "optional" if pin.file in ("dev", "studio", "backbones") else "required",
        "purl": purl,
        "externalReferences": [
            {
                "type": "distribution",
                "url": purl,
                "comment": "one of these files, by platform",
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in digests],
            }
        ],
        "properties": properties,
    }


def _place(pin: Pin) -> tuple[str, str]:
    return pin.name, pin.version


if __name__ == "__main__":
    main()
