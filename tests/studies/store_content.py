"""What a store holds, for tests that compare two of them."""

from intarsia.studies.records import read_records


def content(store):
    """Every byte that must be the same in every run."""
    files = [p for part in ("cells", "banks") for p in (store.path / part).rglob("*")]
    return {str(p.relative_to(store.path)): p.read_bytes() for p in files if p.is_file()}


def events(store, kind):
    return [e for e in read_records(store.path / "runs") if e["event"] == kind]
