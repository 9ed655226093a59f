"""Writes what the program is made of as a CycloneDX document: `sbom.py TREE < METADATA`, cargo's metadata and a file with
what `cargo tree` lists without prefixes.

Crates that are only needed to build or to test are not part of the program. Nor are those that the metadata resolves for
a feature that nobody has asked for: the tree knows which are built.
"""

import json
import sys

metadata = json.load(sys.stdin)
with open(sys.argv[1], encoding="utf-8") as tree:
    built = {tuple(line.split()[:2]) for line in tree if line.strip()}
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
(root,) = (package["id"] for package in metadata["packages"] if package["name"] == "mortise")


def needs(node):
    """Crates that become part of what this one becomes part of."""
    linked = (need for need in node["deps"] if any(kind["kind"] is None for kind in need["dep_kinds"]))
    named = ((need["pkg"], packages[need["pkg"]]) for need in linked)
    return sorted(key for key, package in named if (package["name"], "v" + package["version"]) in built)


found, waiting = set(), [root]
while waiting:
    one = waiting.pop()
    if one not in found:
        found.add(one)
        waiting.extend(needs(nodes[one]))


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package):
    made = {"type": "library", "bom-ref": package["id"], "name": package["name"], "version": package["version"], "purl": purl(package)}
    if package["license"]:
        made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if package["repository"]:
        made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return made


program = {**component(packages[root]), "type": "application"}
document = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {"component": program},
    "components": [component(packages[one]) for one in sorted(found) if one != root],
    "dependencies": [{"ref": one, "dependsOn": needs(nodes[one])} for one in sorted(found)],
}
json.dump(document, sys.stdout, indent=1)
