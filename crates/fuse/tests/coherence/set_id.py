# As an ordinary user: changes a program that everybody may change, in the way that is named and behind its own bytes,
# and runs it (it is id(1)) at once. Prints user and group that it ran as, and the file's mode.
import ctypes, mmap, os, subprocess, sys

path, other, how = sys.argv[1:]
behind = os.stat(path).st_size - 65536
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.mmap(-1, 4096)


def fallocate(fd, mode):
    place = ctypes.c_long(behind), ctypes.c_long(4096)
    assert libc.fallocate(fd, mode, *place) == 0, os.strerror(ctypes.get_errno())


def copy(fd):
    assert os.copy_file_range(os.open(other, os.O_RDONLY), fd, 4096, 0, behind) == 4096


ways = {
    "write": (os.O_RDWR, lambda fd: os.pwrite(fd, b"x", behind)),
    "only-write": (os.O_WRONLY, lambda fd: os.pwrite(fd, b"x", behind)),
    "append": (os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"x")),
    "direct": (os.O_RDWR | os.O_DIRECT, lambda fd: os.pwrite(fd, page, behind)),
    "truncate": (os.O_RDWR, lambda fd: os.ftruncate(fd, behind)),
    "allocate": (os.O_RDWR, lambda fd: fallocate(fd, 0)),
    "punch": (os.O_RDWR, lambda fd: fallocate(fd, 3)),
    "zero": (os.O_RDWR, lambda fd: fallocate(fd, 16)),
    "copy": (os.O_RDWR, copy),
}
flags, change = ways[how]
fd = os.open(path, flags)
change(fd)
os.close(fd)
said = [subprocess.run([path, word], capture_output=True, text=True, check=True).stdout.strip() for word in ("-u", "-g")]
print(*said, f"{os.stat(path).st_mode & 0o7777:o}")
