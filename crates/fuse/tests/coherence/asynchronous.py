# Writes a file over and over past the page cache with io_submit(2), while others read it through the cache; after each
# time, what is read must be what was written last. (As xfstests' generic/451.)
import ctypes, mmap, os, struct, sys, time

path, seconds = sys.argv[1], float(sys.argv[2])
numbers = {"x86_64": (206, 208, 209), "aarch64": (0, 4, 2)}.get(os.uname().machine)
if numbers is None:
    print("skipped: the numbers of the system calls are not known here")
    sys.exit(0)
setup, getevents, submit = numbers
PIECE, PIECES = 16384, 16
libc = ctypes.CDLL(None, use_errno=True)


def call(*arguments):
    result = libc.syscall(*arguments)
    assert result >= 0, os.strerror(ctypes.get_errno())
    return result


plain = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(plain, bytes(PIECE * PIECES), 0)
os.fsync(plain)
readers = []
for number in range(2):
    child = os.fork()
    if child == 0:
        fd, at = os.open(path, os.O_RDONLY), 0
        while os.getppid() != 1:
            os.pread(fd, 4096, at)
            at = (at + (5 + number) * 4096) % (PIECE * PIECES)
        os._exit(0)
    readers.append(child)
try:
    direct = os.open(path, os.O_RDWR | os.O_DIRECT)
    context = ctypes.c_ulong(0)
    call(setup, PIECES, ctypes.byref(context))
    memory = mmap.mmap(-1, PIECE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        rounds += 1
        byte = bytes([rounds % 255 + 1])
        memory[:] = byte * PIECE
        # struct iocb: data, key and flags, operation (1 writes), priority, descriptor, buffer, bytes, offset.
        blocks = [
            ctypes.create_string_buffer(
                struct.pack("=QIIHhIQQqQII", at, 0, 0, 1, 0, direct, address, PIECE, at * PIECE, 0, 0, 0)
            )
            for at in range(PIECES)
        ]
        pointers = (ctypes.c_void_p * PIECES)(*[ctypes.addressof(block) for block in blocks])
        done = 0
        while done < PIECES:
            done += call(submit, context, ctypes.c_long(PIECES - done), ctypes.byref(pointers, done * 8))
        events, done = ctypes.create_string_buffer(32 * PIECES), 0
        while done < PIECES:
            found = call(getevents, context, ctypes.c_long(1), ctypes.c_long(PIECES - done), events, None)
            for at in range(found):
                assert struct.unpack_from("=q", events, 32 * at + 16)[0] == PIECE, "a short write"
            done += found
        read = os.pread(plain, PIECE * PIECES, 0)
        if read != byte * PIECE * PIECES:
            stale = next(at for at in range(len(read)) if read[at] != byte[0])
            print(f"round {rounds}: byte {stale} is {read[stale]}, not {byte[0]}")
            sys.exit(1)
    print(f"{rounds} rounds")
finally:
    for child in readers:
        os.kill(child, 9)
        os.waitpid(child, 0)
