/*
 * The least that a client of a file server can do: one connection, a request, and then the body by
 * splice(2) through a pipe into a file, or by sendfile(2) from one. It knows answers of 200, 201 and
 * 204 with a Content-Length, checks nothing else, and is for the bench only.
 */
#define _GNU_SOURCE
#include <sys/sendfile.h>

#include "peer.h"

#define WORDS "client get|put http://HOST:PORT/PATH FILE"

enum { HEAD = 16 << 10, PIPE = 1 << 20, STEP = PIPE, TURN = 2 << 20 };

static int connect_to(const char *host, uint64_t port)
{
	struct sockaddr_in place = address(host, port);
	int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (to < 0 || connect(to, (struct sockaddr *)&place, sizeof(place)))
		fail(errno, "connecting to %s", host);
	return to;
}

static void say(int to, const char *head, int len, int flags)
{
	if (send(to, head, (size_t)len, flags) != len)
		fail(errno, "sending the request");
}

/* Takes the head of the answer and nothing behind it; returns the length of the body. */
static uint64_t hear(int from)
{
	static char head[HEAD + 1];
	char *end = NULL, *length;
	ssize_t seen = 0;

	while (!end) {
		ssize_t before = seen;

		seen = recv(from, head, HEAD, MSG_PEEK);
		if (seen <= 0 || (seen == before && seen == HEAD))
			fail(seen < 0 ? errno : 0, "no answer");
		head[seen] = 0;
		end = strstr(head, "\r\n\r\n");
	}
	if (recv(from, head, (size_t)(end + 4 - head), MSG_WAITALL) != end + 4 - head)
		fail(errno, "reading the answer");
	end[2] = 0;
	if (strncmp(head, "HTTP/1.1 20", 11))
		fail(0, "%.*s", (int)strcspn(head, "\r"), head);
	length = strcasestr(head, "\r\nContent-Length:");
	return length ? strtoull(length + 17, NULL, 10) : 0;
}

static uint64_t get(int from, const char *path)
{
	uint64_t left = hear(from), len = left;
	int file = open_target(path), ends[2];

	/* Only where the file system can. */
	(void)!fallocate(file, 0, 0, (off_t)len);
	if (pipe2(ends, O_CLOEXEC) || fcntl(ends[1], F_SETPIPE_SZ, PIPE) < 0)
		fail(errno, "making a pipe");
	while (left) {
		ssize_t held = splice(from, NULL, ends[1], NULL, left < STEP ? left : STEP, 0);

		if (held <= 0)
			fail(held ? errno : 0, "the body ends early");
		left -= (uint64_t)held;
		while (held) {
			ssize_t moved = splice(ends[0], NULL, file, NULL, (size_t)held, 0);

			if (moved <= 0)
				fail(errno, "writing");
			held -= moved;
		}
	}
	finish(file, path);
	return len;
}

static void put(int to, int file, uint64_t left)
{
	while (left) {
		ssize_t sent = sendfile(to, file, NULL, left < TURN ? left : TURN);

		if (sent <= 0)
			fail(sent ? errno : 0, "the file ends early");
		left -= (uint64_t)sent;
	}
	hear(to);
}

int main(int argc, char **argv)
{
	static char host[64], path[1024], head[HEAD];
	int len, connection, file = -1;
	double started = now();
	uint64_t port, size = 0;

	if (argc != 4 || sscanf(argv[2], "http://%63[^:]:%" SCNu64 "%1023s", host, &port, path) != 3)
		usage(WORDS);
	connection = connect_to(host, port);
	if (!strcmp(argv[1], "put")) {
		file = open_source(argv[3], &size);
		len = snprintf(head, HEAD, "PUT %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %" PRIu64 "\r\n\r\n",
			       path, host, size);
		say(connection, head, len, MSG_MORE);
		put(connection, file, size);
	} else {
		len = snprintf(head, HEAD, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host);
		say(connection, head, len, 0);
		size = get(connection, argv[3]);
	}
	report(size, now() - started);
	return 0;
}
