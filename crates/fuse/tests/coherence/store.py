# Maps the files shared and goes on storing in pages all over them, until it is told to stop (its input ends).
import mmap, os, select, sys

mappings = []
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDWR)
    mappings.append(mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED))
    os.close(fd)
print("mapped", flush=True)
step = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(50):
        step += 1
        for mapping in mappings:
            at = step * 7 * 4096 % len(mapping)
            mapping[at] = step % 255 + 1
