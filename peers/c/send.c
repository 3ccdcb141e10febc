/*
 * Sends a file over TCP in one of the ways in which that can be done: through a buffer, from a
 * mapping, from a mapping under a lease, or by sendfile.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/sendfile.h>

#include "peer.h"

#define WORDS "send read_write|mmap|mmap_lease|sendfile FILE HOST PORT CHUNK (0: as much as there is)"

/* Set when somebody wants to change the file on which there is a lease. */
static volatile sig_atomic_t lease_is_broken;

static void note_break(int signal)
{
	(void)signal;
	lease_is_broken = 1;
}

static void by_read_write(int file, int to, uint64_t size, size_t chunk)
{
	char *buffer = malloc(chunk);

	if (!buffer)
		fail(errno, "a buffer of %zu bytes", chunk);
	while (size) {
		size_t count = read_some(file, buffer, chunk < size ? chunk : size);

		if (!count)
			fail(0, "the file has become shorter");
		write_all(to, buffer, count);
		size -= count;
	}
	free(buffer);
}

/*
 * A file that somebody makes shorter meanwhile: write(2) then fails with EFAULT, as the kernel reads
 * the mapping, not we.
 */
static void by_mmap(int file, int to, uint64_t size, size_t chunk)
{
	char *bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
	uint64_t sent = 0;

	if (bytes == MAP_FAILED)
		fail(errno, "mapping the file");
	while (sent < size) {
		size_t count = size - sent < chunk ? size - sent : chunk;

		if (lease_is_broken)
			fail(0, "somebody wants to change the file");
		write_all(to, bytes + sent, count);
		sent += count;
	}
	if (munmap(bytes, size))
		fail(errno, "unmapping the file");
}

/* Whoever wants to change the file has to wait until we have given up the lease, or are gone. */
static void by_mmap_lease(int file, int to, uint64_t size, size_t chunk)
{
	struct sigaction action = { .sa_handler = note_break };

	if (sigaction(SIGRTMIN, &action, NULL) || fcntl(file, F_SETSIG, SIGRTMIN))
		fail(errno, "asking for a signal");
	if (fcntl(file, F_SETLEASE, F_RDLCK))
		fail(errno, "taking a lease on the file");
	by_mmap(file, to, size, chunk);
	if (fcntl(file, F_SETLEASE, F_UNLCK))
		fail(errno, "giving up the lease");
}

static void by_sendfile(int file, int to, uint64_t size, size_t chunk)
{
	off_t offset = 0;

	while ((uint64_t)offset < size) {
		uint64_t left = size - (uint64_t)offset;
		ssize_t sent = sendfile(to, file, &offset, left < chunk ? left : chunk);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			fail(errno, "sendfile");
		if (!sent)
			fail(0, "the file has become shorter");
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in place;
	uint64_t size, chunk;
	double started;
	int file, to;

	if (argc != 6)
		usage(WORDS);
	place = address(argv[3], bytes_in(argv[4], WORDS));
	chunk = bytes_in(argv[5], WORDS);
	signal(SIGPIPE, SIG_IGN);
	file = open_source(argv[2], &size);
	if (!chunk)
		chunk = size;

	to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (to < 0 || connect(to, (struct sockaddr *)&place, sizeof(place)))
		fail(errno, "connecting to %s:%s", argv[3], argv[4]);
	started = now();
	if (!size)
		; /* Neither a mapping nor a buffer can be empty. */
	else if (!strcmp(argv[1], "read_write"))
		by_read_write(file, to, size, chunk);
	else if (!strcmp(argv[1], "mmap"))
		by_mmap(file, to, size, chunk);
	else if (!strcmp(argv[1], "mmap_lease"))
		by_mmap_lease(file, to, size, chunk);
	else if (!strcmp(argv[1], "sendfile"))
		by_sendfile(file, to, size, chunk);
	else
		usage(WORDS);
	finish(to, "the connection");
	report(size, now() - started);
	return 0;
}
