/*
 * How fast OpenZFS computes Fletcher-4 here: calls its own library, libzpool, with each of its implementations.
 *
 *     openzfs_fletcher BLOCK MEMORY SECONDS
 *
 * prints the best rate in MiB for a second of processor time of a block that stays in the cache, then of MEMORY bytes block by block.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct { uint64_t words[4]; } sum_t;
static void (*fletcher)(const void *, uint64_t, const void *, sum_t *);

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Passes over `size` bytes, `at_once` of them between looks at the clock. */
static double rate(const char *bytes, size_t size, size_t block, size_t at_once, double seconds)
{
	double start = now(), took;
	size_t runs = 0;
	sum_t sum;

	do {
		for (size_t run = 0; run < at_once; run++)
			for (size_t at = 0; at < size; at += block)
				fletcher(bytes + at, block, NULL, &sum);
		runs += at_once;
		took = now() - start;
	} while (took < seconds);
	return (double)runs * (double)size / took / (1 << 20);
}

int main(int argc, char **argv)
{
	static const char *libraries[] = { "libzpool.so.7", "libzpool.so.6", "libzpool.so.5", "libzpool.so" };
	static const char *names[] = { "avx512bw", "avx512f", "avx2", "ssse3", "sse2", "aarch64_neon", "superscalar4" };
	void *library = NULL;
	double cached = 0, cold = 0;

	if (argc != 4)
		return 2;
	size_t block = strtoull(argv[1], NULL, 10), size = strtoull(argv[2], NULL, 10);
	double seconds = strtod(argv[3], NULL);
	for (size_t i = 0; library == NULL && i < sizeof (libraries) / sizeof (*libraries); i++)
		library = dlopen(libraries[i], RTLD_NOW);
	if (library == NULL) {
		fprintf(stderr, "no library libzpool\n");
		return 3;
	}
	void (*init)(void) = (void (*)(void))dlsym(library, "fletcher_4_init");
	int (*choose)(const char *) = (int (*)(const char *))dlsym(library, "fletcher_4_impl_set");
	fletcher = (void (*)(const void *, uint64_t, const void *, sum_t *))dlsym(library, "fletcher_4_native");
	char *bytes = aligned_alloc(4096, size);
	if (init == NULL || choose == NULL || fletcher == NULL || bytes == NULL)
		return 4;
	memset(bytes, 0xa5, size);
	init();
	for (size_t i = 0; i < sizeof (names) / sizeof (*names); i++) {
		if (choose(names[i]) != 0)
			continue;
		double one = rate(bytes, block, block, 32, seconds);
		double all = rate(bytes, size, block, 1, seconds);
		cached = one > cached ? one : cached;
		cold = all > cold ? all : cold;
	}
	printf("%f\n%f\n", cached, cold);
	return 0;
}
