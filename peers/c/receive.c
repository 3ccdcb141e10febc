/*
 * Receives what one sender sends over TCP, and drops it or writes it to a file. Tells on standard
 * error where it listens.
 */
#define _GNU_SOURCE
#include "peer.h"

#define WORDS "receive HOST FILE|- BUFFER"

static int accept_one(const char *host)
{
	struct sockaddr_in place = address(host, 0);
	socklen_t len = sizeof(place);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int from;

	if (listener < 0 || bind(listener, (struct sockaddr *)&place, len) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&place, &len))
		fail(errno, "listening on %s", host);
	fprintf(stderr, "listening on %s:%u\n", host, ntohs(place.sin_port));
	do
		from = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	while (from < 0 && (errno == EINTR || errno == ECONNABORTED));
	if (from < 0)
		fail(errno, "accepting a connection");
	close(listener);
	return from;
}

int main(int argc, char **argv)
{
	uint64_t received = 0, len;
	int to = -1, from;
	double started;
	char *buffer;
	size_t count;

	if (argc != 4)
		usage(WORDS);
	len = bytes_in(argv[3], WORDS);
	buffer = len ? malloc(len) : NULL;
	if (!buffer)
		fail(0, "no buffer of %" PRIu64 " bytes", len);
	if (strcmp(argv[2], "-"))
		to = open_target(argv[2]);
	from = accept_one(argv[1]);
	started = now();
	while ((count = read_some(from, buffer, len))) {
		if (to >= 0)
			write_all(to, buffer, count);
		received += count;
	}
	if (to >= 0)
		finish(to, argv[2]);
	report(received, now() - started);
	free(buffer);
	return 0;
}
