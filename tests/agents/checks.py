"""What the tests of the real agents look at: the files of a folder, and the checks of a connection."""

import json


def files(*folders):
    """Return the bytes of the settings in these folders, without what agents install for themselves."""
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in paths if "node_modules" not in path.parts}


async def check(butlers, butler, agent, *words, **variables):
    """Return the state of each check, and what was found."""
    done = await butlers("connect", butler, agent.name, *words, "--check", "--json", **variables)
    checks = json.loads(done.stdout)
    assert done.returncode == any(each["state"] == "fail" for each in checks)
    return {each["name"]: (each["state"], each["found"]) for each in checks}
