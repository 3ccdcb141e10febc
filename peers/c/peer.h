/*
 * What these programs have in common: how they fail, what they tell of their work, and how they find
 * each other.
 *
 * Each one tells on standard output, as one line of JSON, how many bytes it moved and how long that
 * took by its own clock. It ends with 0, with 1 and a reason on standard error if the work failed,
 * or with 2 if it was called wrongly.
 */
#ifndef PEER_H
#define PEER_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Ends the program: wrong usage. */
static inline void usage(const char *words)
{
	fprintf(stderr, "usage: %s\n", words);
	exit(2);
}

/* Ends the program with what failed and, unless it is 0, why. */
static inline void fail(int error, const char *what, ...)
{
	va_list rest;

	va_start(rest, what);
	vfprintf(stderr, what, rest);
	va_end(rest);
	if (error)
		fprintf(stderr, ": %s", strerror(error));
	fputc('\n', stderr);
	exit(1);
}

/* Seconds since some moment. */
static inline double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Tells what was done. */
static inline void report(uint64_t bytes, double elapsed)
{
	printf("{\"bytes\": %" PRIu64 ", \"elapsed_s\": %.9f}\n", bytes, elapsed);
	if (fflush(stdout))
		fail(errno, "writing the report");
}

/* A number of bytes in an argument. */
static inline uint64_t bytes_in(const char *text, const char *words)
{
	char *end;
	uint64_t bytes;

	errno = 0;
	bytes = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-')
		usage(words);
	return bytes;
}

/* Opens a regular file to read from. */
static inline int open_source(const char *path, uint64_t *size)
{
	struct stat status;
	int file = open(path, O_RDONLY | O_CLOEXEC);

	if (file < 0 || fstat(file, &status))
		fail(errno, "opening %s", path);
	if (!S_ISREG(status.st_mode))
		fail(0, "opening %s: not a regular file", path);
	*size = (uint64_t)status.st_size;
	return file;
}

/* Opens a file to write to, which is emptied. */
static inline int open_target(const char *path)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	if (file < 0)
		fail(errno, "opening %s", path);
	return file;
}

/* Writes all of the bytes, however many calls that takes. */
static inline void write_all(int to, const char *bytes, size_t len)
{
	while (len) {
		ssize_t written = write(to, bytes, len);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			fail(errno, "writing");
		bytes += written;
		len -= (size_t)written;
	}
}

/* Reads up to so many bytes; 0 at the end. */
static inline size_t read_some(int from, char *bytes, size_t len)
{
	for (;;) {
		ssize_t count = read(from, bytes, len);

		if (count >= 0)
			return (size_t)count;
		if (errno != EINTR)
			fail(errno, "reading");
	}
}

/* Ends what was written to; some errors are only told here. */
static inline void finish(int to, const char *what)
{
	if (close(to))
		fail(errno, "closing %s", what);
}

/* An address of IPv4. */
static inline struct sockaddr_in address(const char *host, uint64_t port)
{
	struct sockaddr_in place = { .sin_family = AF_INET };

	if (inet_pton(AF_INET, host, &place.sin_addr) != 1 || port > 65535)
		fail(0, "'%s' is not an IPv4 address, or %" PRIu64 " no port", host, port);
	place.sin_port = htons((uint16_t)port);
	return place;
}

#endif
