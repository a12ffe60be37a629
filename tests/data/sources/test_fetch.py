import io
import sys
from pathlib import Path
from urllib.request import Request

import numpy as np
import pytest

from intarsia.data.sources.fetch import _Redirects, fetch, matches
from intarsia.errors import DataError

BODY = np.random.default_rng(0).bytes(700_001)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_whole_file_arrives_alone(site, tmp_path: Path) -> None:
    address, digest = site.serve("f", BODY)
    fetch(address, tmp_path / "new" / "f", digest)
    assert (tmp_path / "new" / "f").read_bytes() == BODY
    assert leftovers(tmp_path / "new") == ["f"]


@pytest.mark.parametrize("ignores_ranges", [False, True])
def test_a_part_is_resumed_where_it_ended(site, tmp_path: Path, ignores_ranges: bool) -> None:
    """A server that ignores ranges sends the file anew."""
    address, digest = site.serve("f", BODY)
    site.ignore_range = ignores_ranges
    (tmp_path / "f.part").write_bytes(BODY[:1000])
    fetch(address, tmp_path / "f", digest)
    assert site.asked == ["bytes=1000-"]
    assert (tmp_path / "f").read_bytes() == BODY


def test_broken_transfers_are_resumed_in_one_call(site, tmp_path: Path) -> None:
    address, digest = site.serve("f", BODY)
    site.cuts = [300_000, 300_000]
    fetch(address, tmp_path / "f", digest)
    assert site.asked == [None, "bytes=300000-", "bytes=600000-"]
    assert (tmp_path / "f").read_bytes() == BODY


def test_a_transfer_that_keeps_breaking_leaves_only_the_part(site, tmp_path: Path) -> None:
    address, digest = site.serve("f", BODY)
    site.cuts = [10] * 20
    with pytest.raises(DataError, match="broke off at 40 of 700001 bytes"):
        fetch(address, tmp_path / "f", digest)
    assert leftovers(tmp_path) == ["f.part"]
    assert (tmp_path / "f.part").read_bytes() == BODY[:40]
    site.cuts = []
    fetch(address, tmp_path / "f", digest)
    assert (tmp_path / "f").read_bytes() == BODY


@pytest.mark.parametrize("served", [BODY[:-1], BODY[:5] + b"x" + BODY[6:], b"", b"<html>sorry"])
def test_altered_contents_leave_nothing(site, tmp_path: Path, served: bytes) -> None:
    _, digest = site.serve("f", BODY)
    address, _ = site.serve("f", served)
    with pytest.raises(DataError, match="altered"):
        fetch(address, tmp_path / "f", digest)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("stale", [b"?" * 1000, b"?" * 800_000, BODY + b"?"])
def test_a_stale_part_is_thrown_away(site, tmp_path: Path, stale: bytes) -> None:
    address, digest = site.serve("f", BODY)
    (tmp_path / "f.part").write_bytes(stale)
    fetch(address, tmp_path / "f", digest)
    assert (tmp_path / "f").read_bytes() == BODY
    assert leftovers(tmp_path) == ["f"]


def test_a_finished_part_needs_no_server(tmp_path: Path, site) -> None:
    _, digest = site.serve("f", BODY)
    (tmp_path / "f.part").write_bytes(BODY)
    fetch("http://127.0.0.1:9/f", tmp_path / "f", digest)
    assert (tmp_path / "f").read_bytes() == BODY


def test_an_old_file_is_replaced_only_by_a_whole_one(site, tmp_path: Path) -> None:
    _, digest = site.serve("f", BODY)
    address, _ = site.serve("f", b"short")
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(DataError):
        fetch(address, tmp_path / "f", digest)
    assert (tmp_path / "f").read_bytes() == b"old"


def test_unreachable_addresses(site, tmp_path: Path) -> None:
    for address, message in ((f"{site.address}/none", "404"), ("http://127.0.0.1:9/f", "refused")):
        with pytest.raises(DataError, match=message):
            fetch(address, tmp_path / "f", f"sha256:{'0' * 64}")
    assert leftovers(tmp_path) == []


def test_a_folder_that_cannot_be_written(site, tmp_path: Path) -> None:
    address, digest = site.serve("f", BODY)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be fetched to"):
        fetch(address, tmp_path / "file" / "f", digest)


def test_progress_is_quiet_without_a_terminal(site, tmp_path: Path, capfd) -> None:
    address, digest = site.serve("f", BODY)
    fetch(address, tmp_path / "f", digest)
    assert capfd.readouterr() == ("", "")


def test_progress_is_shown_on_a_terminal(site, tmp_path: Path, monkeypatch, capsys) -> None:
    address, digest = site.serve("f", BODY)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fetch(address, tmp_path / "name.gz", digest)
    assert "name.gz" in capsys.readouterr().err


def test_md5_digests_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    assert matches(tmp_path / "f", "md5:d41d8cd98f00b204e9800998ecf8427e")


@pytest.mark.parametrize(
    ("address", "digest", "message"),
    [
        ("http://127.0.0.1:9/f", f"md5:{'0' * 32}", "only https"),
        ("http://127.0.0.1:9/f", f"sha1:{'0' * 40}", "only https"),
        ("ftp://127.0.0.1/f", f"sha256:{'0' * 64}", "only https"),
        ("file:///etc/hostname", f"sha256:{'0' * 64}", "only https"),
        ("https://127.0.0.1:9/f", "", "is not one"),
        ("https://127.0.0.1:9/f", "sha256:00", "is not one"),
        ("https://127.0.0.1:9/f", f"crc:{'0' * 8}", "is not one"),
        ("https://127.0.0.1:9/f", f"sha256:{'A' * 64}", "is not one"),
        ("https://127.0.0.1:9/f", f"md5:{'0' * 32}", "refused"),  # asked for, as it may be
    ],
)
def test_only_https_or_a_digest_first(
    tmp_path: Path, address: str, digest: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        fetch(address, tmp_path / "f", digest)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1:9/f"])
def test_a_redirect_leads_nowhere_else(site, tmp_path: Path, target: str) -> None:
    _, digest = site.serve("f", BODY)
    site.redirects["elsewhere"] = target
    with pytest.raises(DataError, match=r"only https|not allowed"):
        fetch(f"{site.address}/elsewhere", tmp_path / "f", digest)
    assert leftovers(tmp_path) == []


def test_a_redirect_to_the_file_is_followed(site, tmp_path: Path) -> None:
    address, digest = site.serve("f", BODY)
    site.redirects["elsewhere"] = address
    fetch(f"{site.address}/elsewhere", tmp_path / "f", digest)
    assert (tmp_path / "f").read_bytes() == BODY


def test_a_forgeable_digest_is_not_led_away_from_https() -> None:
    """Asked of the rule itself, as a server with https needs a certificate."""
    request = Request("https://127.0.0.1:9/f")
    lead = {"req": request, "fp": io.BytesIO(), "code": 302, "msg": "", "headers": {}}
    weak, strong = (_Redirects(f"{kind}:00") for kind in ("md5", "sha256"))
    assert strong.redirect_request(**lead, newurl="http://127.0.0.1:9/f") is not None
    assert weak.redirect_request(**lead, newurl="https://127.0.0.1:9/g") is not None
    with pytest.raises(DataError, match="only https"):
        weak.redirect_request(**lead, newurl="http://127.0.0.1:9/f")
