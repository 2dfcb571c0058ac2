# Maps a file shared and does what it is told: "PAGE VERSION" fills a page with a version, eight bytes at a time, "msync"
# and "fsync" make all that stable. Each line is answered with itself.
import mmap, os, struct, sys

PAGE = 4096
fd = os.open(sys.argv[1], os.O_RDWR)
mapping = mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED)
for line in sys.stdin:
    if line == "msync\n":
        mapping.flush()
    elif line == "fsync\n":
        os.fsync(fd)
    else:
        page, version = map(int, line.split())
        mapping[page * PAGE : (page + 1) * PAGE] = struct.pack("=Q", version) * (PAGE // 8)
    print(line, end="", flush=True)
