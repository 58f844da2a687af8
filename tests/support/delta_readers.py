"""Reading Delta tables by the protocol alone.

`by_protocol` follows the transaction log protocol for tables whose versions are all there, and
refuses what it does not know.
"""

import json
from urllib.parse import unquote

from pyarrow import parquet


def versions(folder):
    """Return the actions of each version; fails if one is missing."""
    paths = sorted((folder / "_delta_log").glob("*.json"))
    assert [p.name for p in paths] == [f"{n:020d}.json" for n in range(len(paths))], paths
    return [[json.loads(line) for line in p.read_text().splitlines()] for p in paths]


def by_protocol(folder, version=None):
    """Return the rows of a version, the newest by default."""
    files, schema, kinds = {}, None, {}
    for actions in versions(folder)[: None if version is None else version + 1]:
        for action in actions:
            ((kind, told),) = action.items()
            if kind == "protocol":
                assert told["minReaderVersion"] == 1
            elif kind == "metaData":
                schema = json.loads(told["schemaString"])
                kinds = {f["name"]: f["type"] for f in schema["fields"]}
                assert set(told["partitionColumns"]) < kinds.keys()
            elif kind == "add":
                assert told["path"] not in files
                files[told["path"]] = told
            elif kind == "remove":
                del files[told["path"]]
            else:
                assert kind in ("commitInfo", "txn")
    found = []
    for path, add in files.items():
        file = folder / unquote(path)
        assert file.stat().st_size == add["size"]
        rows = parquet.ParquetFile(file).read().to_pylist()
        assert len(rows) == json.loads(add["stats"])["numRecords"]
        values = {
            name: int(text) if kinds[name] == "integer" and text is not None else text
            for name, text in add["partitionValues"].items()
        }
        for row in rows:
            assert row.keys() <= kinds.keys()
            found.append(dict.fromkeys(kinds) | row | values)
    return found
