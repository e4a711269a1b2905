"""Take single files out of zip archives."""

import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from storage.disk_space import require_space
from storage.errors import PublishedFileInvalid, translated
from storage.location import whole_or_nothing


def extract_member(archive: Path, name: str, target: Path) -> None:
    """Write the one file of an archive whose name without folders is `name`, whole or not at all.

    Names in the archive only choose the member; no path is ever built from them.
    """
    # RuntimeError: the archive asks for a password.
    damage = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)

    def damaged(error: Exception) -> PublishedFileInvalid:
        return PublishedFileInvalid(
            f"{archive} does not give {name}: {error}; expected a whole zip archive, fetch it again"
        )

    with translated(*damage, into=damaged), zipfile.ZipFile(archive) as opened:
        files = [each for each in opened.infolist() if not each.is_dir()]
        found = [each for each in files if PurePosixPath(each.filename).name == name]
        if len(found) != 1:
            names = ", ".join(each.filename for each in files[:10])
            raise PublishedFileInvalid(
                f"{archive} holds {len(found)} files named {name}, expected one; it holds {names}"
            )
        require_space(target.parent, found[0].file_size, f"unpacking {found[0].filename}")
        with (
            whole_or_nothing(target) as partial,
            opened.open(found[0]) as source,
            partial.open("wb") as file,
        ):
            shutil.copyfileobj(source, file, 2**20)
