"""Which files of a dump hold what, by names and first bytes: what cannot be read is said before torch is imported."""

from __future__ import annotations

import re
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from ..errors import BadInput
from ..setup.reading import regular

LAYOUTS = {  # name -> patterns of uploads and of broadcasts; "" where one file holds both
    "rounds": ("round-{round}.npz", ""),
    "files": ("round-{round}/client-{client}.npz", "round-{round}/broadcast.npz"),
}
TENSORS = (".npz", ".safetensors", ".npy")
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib")
AS_TENSORS = "load it where it is from and save its tensors as .safetensors or .npz"
PICKLED = f"a pickle, which would run code; {AS_TENSORS}"
FIRST_BYTES = {b"\x80": PICKLED, b"\x89HDF": f"HDF5; {AS_TENSORS}", b"\x1f\x8b": "compressed by gzip; unpack it first"}


def files_of_dump(dump: Path, layout: str, broadcasts: str | None) -> dict[int, dict[str, Path]]:
    """By round: the file of the broadcast, "broadcast", and of each client, its name; or of all, "all".

    Raises:
        BadInput: it is no folder, or nothing in it is called as the layout says.
    """
    if not dump.is_dir():
        raise BadInput(f"{dump} is not a folder; expected one with a dump's rounds")
    uploads, others = LAYOUTS.get(layout, (layout, broadcasts or ""))
    if layout in LAYOUTS and broadcasts is not None:
        raise BadInput(f"--broadcasts goes with a layout of your own; {layout!r} says where they are")
    _check_patterns(dump, uploads, others)
    found: dict[int, dict[str, Path]] = {}
    matched: set[Path] = set()
    sent_down = None
    if others:
        sent_down = _regex(others)
    for kind, pattern in (("upload", uploads), ("broadcast", others)):
        if not pattern:
            continue
        shape = _regex(pattern)
        for path in sorted(p for p in dump.rglob("*") if p.is_file()):
            match = shape.fullmatch(path.relative_to(dump).as_posix())
            name_of_model = sent_down is not None and sent_down.fullmatch(path.relative_to(dump).as_posix())
            if match is None or (kind == "upload" and name_of_model):
                continue
            held = found.setdefault(int(match["round"]), {})
            name = "all"
            if kind == "broadcast":
                name = "broadcast"
            if name == "all" and "{client}" in pattern:
                name = match["client"]
            name = str(int(name)) if name.isdecimal() else name  # 3 and 03 are one client
            if name in held:
                raise BadInput(f"{dump}: {held[name].name} and {path.name} are both of round {match['round']}, {name}")
            held[name] = path
            matched.add(path)
    if not found:
        raise BadInput(f"{dump}: no file is called as {uploads!r} says; {_what_is_there(dump)}")
    tensors = sorted(path for path in dump.rglob("*") if path.suffix in (*TENSORS, *PICKLES) and path.is_file())
    if strangers := [path.relative_to(dump).as_posix() for path in tensors if path not in matched]:
        named = ", ".join([*strangers[:3], *["…"][: len(strangers) - 3]])
        raise BadInput(
            f"{dump}: {len(strangers)} of its files are not called as {uploads!r} says ({named}), and ε would leave out"
            f" what they hold; rename them ({', '.join(PICKLES)}: {AS_TENSORS}), or move them out of the folder"
        )
    one = next(iter(found[min(found)].values()))
    if other := foreign(one):
        raise BadInput(f"{one} is {other}")
    if missing := [n for n, held in sorted(found.items()) if not held.keys() & {"broadcast", "all"}]:
        raise BadInput(f"{dump}: round {missing[0]} has no broadcast; the model that clients started from is needed")
    return found


def _check_patterns(dump: Path, uploads: str, others: str) -> None:
    """Of uploads and of broadcasts. Raises BadInput."""
    if "{round}" not in uploads:
        known = ", ".join(LAYOUTS)
        raise BadInput(f"--layout {uploads!r}: expected {known}, or a pattern such as 'r{{round}}/site{{client}}.npz'")
    for option, pattern in (("--layout", uploads), ("--broadcasts", others)):
        twice = [part for part in ("{round}", "{client}") if pattern.count(part) > 1]
        if twice or "{round}{client}" in pattern or "{client}{round}" in pattern:
            said = "something must stand between {round} and {client}"
            if twice:
                said = f"{twice[0]} stands in it twice"
            raise BadInput(f"{option} {pattern!r}: {said}")
    if "{client}" in others:
        raise BadInput(f"--broadcasts {others!r}: a model is sent to all, so {{client}} has no place in it")
    if "{client}" in uploads and "{round}" not in others:
        raise BadInput("--broadcasts: give the files of the models sent out too, such as 'r{round}/global.npz'")
    for pattern in (uploads, others):
        if Path(pattern).suffix in PICKLES:
            raise BadInput(f"{dump}: a {Path(pattern).suffix} file is {PICKLED}")


def _what_is_there(dump: Path) -> str:
    """Of a folder in which nothing is called as its layout says: what it seems to hold, and what would be right."""
    names = [path.relative_to(dump).as_posix() for path in sorted(dump.rglob("*")) if path.is_file()]
    if any(re.search(r"round-?[0-9]+-weights\.", name) for name in names):
        return (
            "round-N-weights are the server's models alone, of which nothing of a client can be priced; record the"
            " uploads too (record_strategy, or a Recorder)"
        )
    if pickled := [name for name in names if Path(name).suffix in PICKLES]:
        return f"{pickled[0]} is {PICKLED}"
    there = "it is empty"
    if names:
        there = f"there are {', '.join(names[:3])}"
    return f"{there}; a layout of your own is --layout 'r{{round}}/site{{client}}.npz' with --broadcasts"


def _regex(pattern: str) -> re.Pattern[str]:
    """.npz in a pattern stands for .safetensors too.

    >>> _regex("r{round}/site{client}.npz").fullmatch("r07/site12.safetensors").groupdict()
    {'round': '07', 'client': '12'}
    """
    plain = re.escape(pattern).replace(r"\{round\}", r"(?P<round>[0-9]+)").replace(r"\{client\}", r"(?P<client>[^/]+)")
    return re.compile(re.sub(r"\\\.npz$", r"\\.(?:npz|safetensors)", plain))


def foreign(path: Path) -> str:
    """What a file is that is called as one of tensors, and how to mend it, by how it begins; "" where nothing is odd.

    Raises:
        BadInput: it is missing, or no file.
    """
    with regular(path).open("rb") as file:
        first = file.read(9)
    if first[8:] == b"{":  # safetensors, after the length of its header
        return ""
    if first[:4] == b"PK\x03\x04":
        try:
            with ZipFile(path) as archive:
                if any(name.endswith("data.pkl") for name in archive.namelist()):
                    return PICKLED
                return ""
        except BadZipFile:
            return ""
    return next((kind for begins, kind in FIRST_BYTES.items() if first.startswith(begins)), "")
