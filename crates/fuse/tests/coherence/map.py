# Maps a file shared and stores what it is told to: lines "OFFSET TEXT". Answers each with "stored"; ends, and the
# mapping with it, when there are no more.
import mmap, os, sys

fd = os.open(sys.argv[1], os.O_RDWR)
mapping = mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED)
os.close(fd)
for line in sys.stdin:
    offset, text = line.split()
    mapping[int(offset):int(offset) + len(text)] = text.encode()
    print("stored", flush=True)
