# File handles, as an NFS server has them. `take PATH...` prints a handle for each path; `open MOUNT HANDLE...` opens
# each and prints what it finds: a path (or "?" where there is none) and contents, or the error's name.
import ctypes, errno, os, sys

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100


class Handle(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]


def take(path):
    handle, mount = Handle(size=128), ctypes.c_int()
    done = libc.name_to_handle_at(AT_FDCWD, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount), 0)
    assert done == 0, os.strerror(ctypes.get_errno())
    return f"{handle.kind}:{bytes(handle.bytes[: handle.size]).hex()}"


def look(mount, text):
    kind, data = text.split(":")
    data = bytes.fromhex(data)
    handle = Handle(size=len(data), kind=int(kind))
    ctypes.memmove(handle.bytes, data, len(data))
    fd = libc.open_by_handle_at(mount, ctypes.byref(handle), os.O_RDONLY)
    if fd < 0:
        return errno.errorcode[ctypes.get_errno()]
    path = os.readlink(f"/proc/self/fd/{fd}")
    try:
        said = os.read(fd, 100).decode()
    except IsADirectoryError:
        said = ",".join(sorted(os.listdir(fd)))
    os.close(fd)
    return f"{path} {said}"


what, *words = sys.argv[1:]
if what == "take":
    for path in words:
        print(take(path))
else:
    mount = os.open(words[0], os.O_RDONLY)
    for text in words[1:]:
        print(look(mount, text))
