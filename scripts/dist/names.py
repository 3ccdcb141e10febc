"""Answers DNS on 127.0.0.1: files.test is 127.0.0.1, and there is no other name."""

import socket

ASKED = b"\x05files\x04test\x00"

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
print("ready", flush=True)
while True:
    query, client = server.recvfrom(512)
    name_end = query.index(b"\x00", 12) + 1
    name, question = query[12:name_end].lower(), query[12 : name_end + 4]
    is_ipv4 = question[-4:-2] == b"\x00\x01"
    answers = name == ASKED and is_ipv4
    refusal = 0 if name == ASKED else 3
    head = query[:2] + bytes([0x81, 0x80 | refusal, 0, 1, 0, int(answers), 0, 0, 0, 0])
    record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x7f\x00\x00\x01"
    server.sendto(head + question + (record if answers else b""), client)
