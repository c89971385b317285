"""Copy pinned browser libraries from npm into the tree, so that neither users nor CI ever need npm or a CDN.

``python scripts/vendor_static.py`` packs and copies (needs npm once, at development time);
``python scripts/vendor_static.py --check`` compares what is committed with the manifest of SHA-256 digests.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MANIFEST = ROOT / "static/vendor/manifest.json"

# npm package -> (version, {path in the package: path in the tree})
PACKAGES: dict[str, tuple[str, dict[str, str]]] = {
    "htmx.org": ("4.0.1", {"dist/htmx.min.js": "static/vendor/htmx.min.js", "LICENSE": "static/vendor/htmx.LICENSE"}),
    "uplot": (
        "1.6.32",
        {
            "dist/uPlot.iife.min.js": "static/vendor/uplot.min.js",
            "dist/uPlot.min.css": "static/vendor/uplot.min.css",
            "LICENSE": "static/vendor/uplot.LICENSE",
        },
    ),
    "tus-js-client": (
        "4.3.1",
        {"dist/tus.min.js": "static/vendor/tus.min.js", "LICENSE": "static/vendor/tus.LICENSE"},
    ),
    # SHA-256 of files as they are read, which the browser's own crypto.subtle cannot do; plain modules, no WebAssembly.
    "@noble/hashes": (
        "2.4.0",
        {
            "sha2.js": "static/vendor/noble/sha2.js",
            "_md.js": "static/vendor/noble/_md.js",
            "_u64.js": "static/vendor/noble/_u64.js",
            "utils.js": "static/vendor/noble/utils.js",
            "LICENSE": "static/vendor/noble/LICENSE",
        },
    ),
    "axe-core": ("4.14.1", {"axe.min.js": "tests/console/web/vendor/axe.min.js"}),
}
# daisyUI is a Tailwind plugin made of many small modules: only those are needed to build the style sheet.
DAISYUI = ("daisyui", "5.8.1", "static_src/vendor/daisyui")
LUCIDE = ("lucide-static", "1.62.0", "static/icons.svg")
ICONS = """
activity alarm-clock archive arrow-left arrow-right arrow-up-right ban bell book-open box boxes check chevron-down
chevron-right chevrons-up-down circle circle-alert circle-check circle-dashed circle-help circle-pause circle-play
circle-x clipboard clock cloud-upload copy cpu download external-link file file-text flask-conical folder-open gauge
git-branch git-commit-horizontal git-compare grip hard-drive history house inbox info key-round keyboard layers
layout-dashboard link list loader-circle lock log-out memory-stick menu microchip monitor moon network octagon-alert
package package-check package-plus pause pencil play plus power radio refresh-cw rocket route rotate-ccw scale
scroll-text search send server server-off settings shield shield-check ship sliders-horizontal sun terminal trash-2
triangle-alert undo-2 upload user user-minus user-plus users x zap
""".split()  # noqa: SIM905  one name a line would be a page of names


def pack(package: str, version: str, folder: Path) -> Path:
    """Fetch one package with ``npm pack`` and return the folder it was unpacked in."""
    done = subprocess.run(
        ["npm", "pack", "--silent", f"{package}@{version}", "--pack-destination", str(folder)],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    target = folder / package.replace("/", "-").lstrip("@")
    with tarfile.open(folder / done.stdout.split()[-1]) as archive:
        archive.extractall(target, filter="data")
    return target / "package"


def sprite(icons: Path) -> str:
    """Return one SVG with a symbol for each used icon."""
    symbols = []
    for name in sorted(ICONS):
        source = (icons / f"{name}.svg").read_text()
        body = source[source.index(">", source.index("<svg")) + 1 : source.rindex("</svg>")]
        body = re.sub(r"\s*\n\s*", "", body)
        symbols.append(f'<symbol id="{name}" viewBox="0 0 24 24">{body}</symbol>')
    return (
        "<!-- Icons of lucide (ISC licence, lucide.dev) -->\n"
        '<svg xmlns="http://www.w3.org/2000/svg">\n' + "\n".join(symbols) + "\n</svg>\n"
    )


def copy_daisyui(package: Path, target: Path) -> list[Path]:
    """Copy the plugin's modules and licence; return what was written."""
    written = []
    for source in [package / "LICENSE", package / "package.json", *sorted(package.rglob("*.js"))]:
        destination = target / source.relative_to(package)
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_bytes(source.read_bytes())
        written.append(destination)
    return written


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def vendor() -> None:
    """Copy everything and write the manifest."""
    written: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for package, (version, files) in PACKAGES.items():
            unpacked = pack(package, version, folder)
            for source, destination in files.items():
                path = ROOT / destination
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes((unpacked / source).read_bytes())
                written[destination] = f"{package}@{version}"
        package, version, destination = DAISYUI
        for path in copy_daisyui(pack(package, version, folder), ROOT / destination):
            written[str(path.relative_to(ROOT))] = f"{package}@{version}"
        package, version, destination = LUCIDE
        (ROOT / destination).write_text(sprite(pack(package, version, folder) / "icons"))
        written[destination] = f"{package}@{version}"
    manifest = {path: {"source": source, "sha256": digest(ROOT / path)} for path, source in sorted(written.items())}
    MANIFEST.write_text(json.dumps(manifest, indent=1) + "\n")


def check() -> list[str]:
    """Return one line for each file that is missing or differs from the manifest."""
    problems = []
    for path, entry in json.loads(MANIFEST.read_text()).items():
        file = ROOT / path
        if not file.is_file():
            problems.append(f"{path}: missing")
        elif digest(file) != entry["sha256"]:
            problems.append(f"{path}: differs from {entry['source']}")
    return problems


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        found = check()
        print("\n".join(found) or "vendored files match the manifest")
        sys.exit(1 if found else 0)
    vendor()
