"""What a server passes of the conformance suite directly, it passes behind Windlass, but for what `differences.txt` lists with its reason.

    python3 compare.py REVISION DIRECT THROUGH

The two folders are what the suite has written with `--output-dir`."""
import json
import pathlib
import sys

REVISION, DIRECT, THROUGH = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])


def passed(folder):
    """Whether each check passed, by its scenario and id; one that was made several times passed if it did each time."""
    checks = {}
    for file in sorted(folder.glob("server-*/checks.json")):
        # Behind the name stands when it ran.
        scenario = file.parent.name.removeprefix("server-").rsplit("-2026-", 1)[0].rsplit("-2027-", 1)[0]
        for check in json.loads(file.read_text()):
            name = (scenario, check["id"])
            checks[name] = checks.get(name, True) and check["status"] == "SUCCESS"
    return checks


def listed():
    """The differences that are known, each with its reason."""
    known = {}
    for line in pathlib.Path(__file__).with_name("differences.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            place, reason = line.split(": ", 1)
            revision, scenario, check = place.split()
            if revision == REVISION:
                known[(scenario, check)] = reason
    return known


direct, through, known = passed(DIRECT), passed(THROUGH), listed()
assert len(direct) > 50, f"the suite has run {len(direct)} checks"
lost = {name for name, is_passed in direct.items() if is_passed and not through.get(name, False)}
for scenario, check in sorted(lost - known.keys()):
    print(f"{REVISION} {scenario} {check}: passes directly, and not behind windlass")
for scenario, check in sorted(known.keys() - lost):
    print(f"{REVISION} {scenario} {check}: is no difference any more and must leave differences.txt")
if lost != known.keys():
    sys.exit(1)
same = sum(is_passed for is_passed in direct.values()) - len(lost)
print(f"{REVISION}: {same} checks pass directly and behind windlass, {len(lost)} differ for a known reason")
