"""Directories and files: a lock against other processes, durable names of files, temporary directories, and
permissions of secrets.
"""

import fcntl
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

LINKS_MAX: Final = 40
"""Symbolic links of a path that are followed, as by the kernel; a path with more is refused."""

POD_VARIABLE: Final = "KUBERNETES_SERVICE_HOST"
"""An environment variable of each pod. Kubernetes makes its volumes writable to all, and only the pod sees them."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[int]:
    """Exclude other processes that lock this directory; give its descriptor."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def make_temporary_folder(purpose: str) -> Iterator[Path]:
    """Make a directory that only this user can enter, and remove it at the end. First remove those of the same purpose
    that processes of this user left behind when they were killed: a lock shows which ones are in use.

    Raises:
        OSError: no directory can be made.
    """
    prefix = f"yunishard-{purpose}-"
    for one in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # it is in use, belongs to another user, or is no directory
            _remove_unlocked(one)
    folder, descriptor = _make_locked(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # an error at the very end has no remedy
        os.close(descriptor)


def _make_locked(prefix: str) -> tuple[Path, int]:
    """Make a temporary directory and lock it. Another process that starts at this moment may take it for abandoned and
    remove it before it is locked; then the next one is made.
    """
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return folder, descriptor
            os.close(descriptor)


def _remove_unlocked(folder: Path) -> None:
    """Remove a directory of this user that no process has locked. Raises OSError if that is not possible."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_uid == os.geteuid():
            shutil.rmtree(folder)
    finally:
        os.close(descriptor)


def sync_path(path: Path) -> None:
    """Make the content of a file durable, or the file names in a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def find_intruder(folder: Path) -> str:
    """Return which other user could replace or change files below a directory, with the remedy; empty if only this user
    and root can. The part of the path that does not exist yet is not checked.

    The directory has to belong to this user, and no other one may write to it. Each directory above it, also those that
    its symbolic links lead through, has to belong to this user or root, and others may write to it only if they can't
    rename what is not theirs (the sticky bit, as `/tmp` has). A user that passes these rules cannot undo them, so the
    answer stays valid.
    """
    path, rest, links = Path("/"), list(folder.absolute().parts[1:]), 0
    while True:
        try:
            found = path.lstat()
        except FileNotFoundError:
            return ""
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if problem := _find_owner_problem(path, found):
                return problem
            if links > LINKS_MAX:
                return f"{path}: has too many symbolic links; name the directory itself"
            target = path.readlink()
            rest[:0] = target.parts[1:] if target.is_absolute() else target.parts
            path = Path("/") if target.is_absolute() else path.parent
        elif problem := _find_folder_problem(path, found, is_last=not rest):
            return problem
        elif not rest:
            return ""
        name = rest.pop(0)
        path = path.parent if name == ".." else path / name


def _find_folder_problem(path: Path, found: os.stat_result, *, is_last: bool) -> str:
    if _is_volume_of_pod(path, found):
        return ""
    writers = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if found.st_mode & stat.S_ISVTX and not is_last:
        writers = 0
    if writers == stat.S_IWGRP and not is_last and _is_private_group(found):
        writers = 0
    if writers:
        who = "all users" if writers & stat.S_IWOTH else f"the group {found.st_gid}"
        return f"{path}: {who} may write to it; see what is there, then `chmod go-w {path}`"
    return _find_owner_problem(path, found, is_own=is_last)


def _find_owner_problem(path: Path, found: os.stat_result, *, is_own: bool = False) -> str:
    if found.st_uid == os.geteuid() or (not is_own and found.st_uid in (0, _find_outer_root())):
        return ""
    return f"{path}: belongs to another user, {_name_user(found.st_uid)}, not to {_name_user(os.geteuid())}"


def _find_outer_root() -> int:
    """Return the user that owns the files of root in a user namespace that does not contain root; otherwise root."""
    try:
        if Path("/proc/self/uid_map").read_text().split() != ["0", "0", str((1 << 32) - 1)]:
            return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except FileNotFoundError:  # not Linux
        pass
    return 0


def _is_private_group(found: os.stat_result) -> bool:
    """Whether the group is the one of the owner alone, as many systems make one for each user."""
    return found.st_gid == found.st_uid == os.geteuid() != 0


def _is_volume_of_pod(path: Path, found: os.stat_result) -> bool:
    return found.st_uid == 0 and POD_VARIABLE in os.environ and os.path.ismount(path)


def _name_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def find_obstacle(path: Path, *, is_written: bool = True) -> str:
    """Return why a path cannot be a file that this process reads, and writes if `is_written`, such as "is a directory";
    empty if it can, or if there is nothing. The file is not opened: that would wait for ever if it is a fifo.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "is a link to nothing" if path.is_symlink() else ""
    except OSError as error:
        return f"cannot be used: {error.strerror or error}"
    kinds = {stat.S_IFDIR: "directory", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket"}
    if not stat.S_ISREG(mode):
        return f"is a {kinds.get(stat.S_IFMT(mode), 'device')}, not a file"
    if not os.access(path, os.R_OK | (os.W_OK if is_written else 0), effective_ids=True):
        return f"may not be read{' and written' if is_written else ''} by this user"
    return ""


def read_stamp(path: Path) -> tuple[int, ...]:
    """Return a value that differs after every change of a file: with the inode, as editors and mounts replace files,
    and with the ctime, as `cp -p` keeps the mtime.

    Raises:
        OSError: there is no such file.
    """
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def remove_any(path: Path) -> None:
    """Remove a file, a directory with everything in it, or nothing.

    Raises:
        OSError: it cannot be removed.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def is_exposed(found: os.stat_result) -> bool:
    """Whether other users can read a secret file with this status.

    The group of a file that belongs to root may read it, as with PostgreSQL's keys: so does Kubernetes pass a Secret to
    a process that is not root.
    """
    allowed = stat.S_IRGRP if found.st_uid == 0 and os.geteuid() != 0 else 0
    return bool(found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) & ~allowed)
