# Gives PATH two extended attributes; as root and as nobody lists them and allocates space of PATH.
import ctypes, os, sys

path = sys.argv[1]
os.setxattr(path, "trusted.one", b"1")
os.setxattr(path, "user.two", b"2")
libc = ctypes.CDLL(None, use_errno=True)


def by(uid, work):
    child = os.fork()
    if child == 0:
        if uid:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        print(uid, work(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)


def names():
    return ",".join(sorted(name for name in os.listxattr(path) if not name.startswith("system.")))


def allocate():
    fd = os.open(path, os.O_RDWR)
    assert libc.fallocate(fd, 0, ctypes.c_long(0), ctypes.c_long(100000)) == 0
    return f"allocates: {os.stat(path).st_mode & 0o7777:o}"


for work in names, allocate:
    for uid in 0, 65534:
        by(uid, work)
