/*
 * Copies a file to another one through a buffer, or by sendfile with as much in one call.
 */
#define _GNU_SOURCE
#include <sys/sendfile.h>

#include "peer.h"

#define WORDS "copy read_write|sendfile FROM TO BUFFER (0: as much as there is)"

static void by_read_write(int from, int to, uint64_t size, size_t len)
{
	char *buffer = malloc(len);
	size_t count;

	if (!buffer)
		fail(errno, "a buffer of %zu bytes", len);
	while ((count = read_some(from, buffer, len))) {
		write_all(to, buffer, count);
		size -= count < size ? count : size;
	}
	if (size)
		fail(0, "the file has become shorter");
	free(buffer);
}

static void by_sendfile(int from, int to, uint64_t size, size_t len)
{
	while (size) {
		ssize_t count = sendfile(to, from, NULL, len < size ? len : size);

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			fail(errno, "sendfile");
		if (!count)
			fail(0, "the file has become shorter");
		size -= (uint64_t)count;
	}
}

int main(int argc, char **argv)
{
	uint64_t size, len;
	double started;
	int from, to;

	if (argc != 5)
		usage(WORDS);
	len = bytes_in(argv[4], WORDS);
	started = now();
	from = open_source(argv[2], &size);
	to = open_target(argv[3]);
	if (!len)
		len = size;
	if (!size)
		; /* No buffer can be empty. */
	else if (!strcmp(argv[1], "read_write"))
		by_read_write(from, to, size, len);
	else if (!strcmp(argv[1], "sendfile"))
		by_sendfile(from, to, size, len);
	else
		usage(WORDS);
	finish(to, argv[3]);
	report(size, now() - started);
	return 0;
}
