"""Take single files out of zip archives."""

import shutil
import uuid
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from storage.disk_space import require_space
from storage.errors import PublishedFileInvalid


def extract_member(archive: Path, name: str, target: Path) -> None:
    """Write the one file of an archive whose name without folders is `name`, whole or not at all.

    Names in the archive only choose the member; no path is ever built from them. An archive
    with a name that leads out of its folder is refused as a whole.
    """
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(archive) as opened:
            member = _member(opened, archive, name)
            require_space(target.parent, member.file_size, f"unpacking {member.filename}")
            with opened.open(member) as source, partial.open("wb") as file:
                shutil.copyfileobj(source, file, 2**20)
        partial.replace(target)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # RuntimeError: the archive asks for a password.
        raise PublishedFileInvalid(
            f"{archive} does not give {name}: {error}; expected a whole zip archive, fetch it again"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _member(opened: zipfile.ZipFile, archive: Path, name: str) -> zipfile.ZipInfo:
    for each in opened.infolist():
        parts = PurePosixPath(each.filename.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or ":" in parts.parts[0]:
            raise PublishedFileInvalid(
                f"{archive} holds {each.filename!r}, which leads out of its folder; it is not used"
            )
    files = [each for each in opened.infolist() if not each.is_dir()]
    found = [each for each in files if PurePosixPath(each.filename).name == name]
    if len(found) != 1:
        names = ", ".join(each.filename for each in files[:10])
        raise PublishedFileInvalid(
            f"{archive} holds {len(found)} files named {name}, expected one; it holds {names}"
        )
    return found[0]
