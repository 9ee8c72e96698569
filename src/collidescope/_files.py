"""Former names of :mod:`collidescope._store`, until every caller has moved."""

from collidescope._store import read_json, unfinished_prefix, write_json
from collidescope._store import write_bytes as replace_file

__all__ = ["read_json", "replace_file", "unfinished_prefix", "write_json"]
