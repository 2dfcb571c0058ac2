# Mounts MOUNT once more at OTHER with ids mapped: on disk 0 and 1000 are 10000 and 11000 there (mount_setattr(2)).
# As 11000 and as 10000 with root's rights over it makes files there. Prints what either mount says of them.
import ctypes, os, struct, subprocess, sys

mount, other = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
AT_EMPTY_PATH, AT_FDCWD, CLONE, OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 0x1000, -100, 1, 428, 429, 442
IDMAP, USER_SPACE = 0x100000, 0x10000000


def check(done):
    if done < 0:
        print("error", os.strerror(ctypes.get_errno()))
        sys.exit(0)
    return done


# A process in a user name space of its own holds the mapping.
holder = subprocess.Popen(["unshare", "--user", "sleep", "60"])
space = f"/proc/{holder.pid}/ns/user"
while os.readlink(space) == os.readlink("/proc/self/ns/user"):
    if holder.poll() is not None:
        print("error no user name space can be made here")
        sys.exit(0)
for kind in ("uid", "gid"):
    with open(f"/proc/{holder.pid}/{kind}_map", "w") as file:
        file.write("0 10000 10000")
tree = check(libc.syscall(OPEN_TREE, AT_FDCWD, os.fsencode(mount), CLONE | os.O_CLOEXEC))
attr = struct.pack("QQQQ", IDMAP, 0, 0, os.open(space, os.O_RDONLY))
check(libc.syscall(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attr, len(attr)))
check(libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(other), 4))
holder.kill()


def owners(name):
    seen = [os.lstat(os.path.join(place, name)) for place in (mount, other)]
    print(name, *(f"{found.st_uid}:{found.st_gid}" for found in seen))


def by(uid, work):
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        try:
            work()
        except OSError as error:
            print(error.strerror, flush=True)
        os._exit(0)
    os.waitpid(child, 0)


owners("of-root")
owners("of-1000")
by(11000, lambda: open(other + "/home/file", "w").write("text"))
by(11000, lambda: os.mkdir(other + "/home/directory"))
by(11000, lambda: os.symlink("file", other + "/home/link"))
by(11000, lambda: os.mkfifo(other + "/home/pipe"))
for name in ("file", "directory", "link", "pipe"):
    owners("home/" + name)
# Who has no place in the mapping makes nothing; who is somebody else may not either.
by(1000, lambda: open(other + "/all/stranger", "w"))
by(11000, lambda: open(other + "/of-root", "w"))
os.chown(other + "/of-1000", 12000, 12001)
owners("of-1000")
print(open(mount + "/home/file").read())
libc.umount2(os.fsencode(other), 2)
