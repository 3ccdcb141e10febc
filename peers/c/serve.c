/*
 * The least that a file server on one core can do: epoll, recv, fstat, then pread and send for a small
 * file, or the head with MSG_MORE and sendfile for a larger one. It answers GET alone, keeps every
 * connection and every file open, checks no path, and is for the bench only.
 */
#define _GNU_SOURCE
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>

#include "peer.h"

#define WORDS "serve PORT SMALL (the largest file that is copied), in the folder that is served"

enum { CONNECTIONS = 65536, FILES = 64, EVENTS = 512, TURN = 2 << 20, HEAD = 512, REQUEST = 16 << 10 };

/* What is still to be sent over a connection. */
static struct {
	int file;
	off_t at;
	size_t left;
} under_way[CONNECTIONS];

/* The files that were asked for. */
static struct {
	char name[256];
	int file;
} known[FILES];

static char buffer[HEAD + (1 << 20)];
static size_t small;
static int events_of;

static int find(const char *name, size_t len)
{
	int i;

	for (i = 0; i < FILES && *known[i].name; i++)
		if (strlen(known[i].name) == len && !memcmp(known[i].name, name, len))
			return known[i].file;
	if (i == FILES || len >= sizeof(known[i].name))
		fail(0, "too many files, or too long a name");
	memcpy(known[i].name, name, len);
	known[i].file = open(known[i].name, O_RDONLY | O_CLOEXEC);
	if (known[i].file < 0)
		fail(errno, "opening %s", known[i].name);
	return known[i].file;
}

static void leave(int socket)
{
	under_way[socket].left = 0;
	close(socket);
}

static void watch(int socket, int operation, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = socket };

	if (epoll_ctl(events_of, operation, socket, &event))
		fail(errno, "epoll_ctl");
}

/* Sends at most a turn of the file; edges tell when the socket takes more. */
static void go_on(int socket)
{
	size_t turn = TURN;

	while (under_way[socket].left && turn) {
		size_t len = under_way[socket].left < turn ? under_way[socket].left : turn;
		ssize_t sent = sendfile(socket, under_way[socket].file, &under_way[socket].at, len);

		if (sent < 0 && errno == EAGAIN)
			return;
		if (sent <= 0) {
			leave(socket);
			return;
		}
		under_way[socket].left -= (size_t)sent;
		turn -= (size_t)sent;
	}
	if (under_way[socket].left)
		watch(socket, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT | EPOLLET);
}

static void answer(int socket)
{
	static char request[REQUEST + 1];
	ssize_t len = recv(socket, request, REQUEST, 0);
	struct stat status;
	int file, head;
	char *end;

	if (len < 0 && errno == EAGAIN)
		return;
	request[len < 0 ? 0 : len] = 0;
	end = len > 5 ? strchr(request + 5, ' ') : NULL;
	if (!end || memcmp(request, "GET /", 5)) {
		leave(socket);
		return;
	}
	file = find(request + 5, (size_t)(end - request - 5));
	if (fstat(file, &status))
		fail(errno, "fstat");
	head = snprintf(buffer, HEAD,
			"HTTP/1.1 200 OK\r\nServer: bare\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
			"Content-Type: application/octet-stream\r\nContent-Length: %jd\r\n"
			"Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\nETag: \"0123456789abcdef\"\r\n"
			"Accept-Ranges: bytes\r\n\r\n",
			(intmax_t)status.st_size);
	if ((size_t)status.st_size <= small) {
		ssize_t read = pread(file, buffer + head, (size_t)status.st_size, 0);

		if (read != status.st_size || send(socket, buffer, (size_t)(head + read), 0) != head + read)
			leave(socket);
		return;
	}
	if (send(socket, buffer, (size_t)head, MSG_MORE) != head) {
		leave(socket);
		return;
	}
	under_way[socket].file = file;
	under_way[socket].at = 0;
	under_way[socket].left = (size_t)status.st_size;
	go_on(socket);
}

int main(int argc, char **argv)
{
	struct epoll_event events[EVENTS];
	struct sockaddr_in place;
	int listener, one = 1;

	if (argc != 3)
		usage(WORDS);
	place = address("127.0.0.1", bytes_in(argv[1], WORDS));
	small = bytes_in(argv[2], WORDS);
	if (small > sizeof(buffer) - HEAD)
		usage(WORDS);
	signal(SIGPIPE, SIG_IGN);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (listener < 0 || bind(listener, (struct sockaddr *)&place, sizeof(place)) || listen(listener, 4096))
		fail(errno, "listening at port %s", argv[1]);
	events_of = epoll_create1(EPOLL_CLOEXEC);
	watch(listener, EPOLL_CTL_ADD, EPOLLIN);
	for (;;) {
		int count = epoll_wait(events_of, events, EVENTS, -1);

		for (int i = 0; i < count; i++) {
			int socket = events[i].data.fd;

			if (socket == listener) {
				while ((socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
					if (socket >= CONNECTIONS)
						fail(0, "too many connections");
					watch(socket, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT | EPOLLET);
				}
			} else if (under_way[socket].left) {
				go_on(socket);
			} else {
				answer(socket);
			}
		}
	}
}
