import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Locale;

/**
 * A file over TCP by {@code FileChannel.transferTo}, and a receiver for it.
 *
 * <p>Tells on standard output, as one line of JSON, how many bytes were moved in how many seconds.
 * Ends with 0, with 1 and a reason on standard error, or with 2 if called wrongly.
 */
public final class TransferTo {
    public static void main(String[] args) {
        try {
            if (args.length == 5 && args[0].equals("send")) {
                send(args[1], args[2], Integer.parseInt(args[3]), Long.parseLong(args[4]));
            } else if (args.length == 4 && args[0].equals("receive")) {
                receive(args[1], args[2], Integer.parseInt(args[3]));
            } else {
                System.err.println(
                        "usage: send FILE HOST PORT CHUNK (0: all) | receive HOST FILE|- BUFFER");
                System.exit(2);
            }
        } catch (IOException | NumberFormatException failure) {
            System.err.println(failure);
            System.exit(1);
        }
    }

    private static void send(String file, String host, int port, long chunk) throws IOException {
        try (FileChannel from = FileChannel.open(Path.of(file), StandardOpenOption.READ);
                SocketChannel to = SocketChannel.open(new InetSocketAddress(host, port))) {
            long started = System.nanoTime();
            long size = from.size();
            for (long sent = 0; sent < size; ) {
                long wanted = chunk == 0 ? size - sent : Math.min(chunk, size - sent);
                long count = from.transferTo(sent, wanted, to);
                if (count == 0 && from.size() < size) {
                    throw new EOFException("the file has become shorter");
                }
                sent += count;
            }
            report(size, started);
        }
    }

    private static void receive(String host, String file, int len) throws IOException {
        try (ServerSocketChannel listener = ServerSocketChannel.open()) {
            listener.bind(new InetSocketAddress(host, 0));
            int port = ((InetSocketAddress) listener.getLocalAddress()).getPort();
            System.err.println("listening on " + host + ":" + port);
            try (SocketChannel from = listener.accept();
                    FileChannel to = file.equals("-") ? null : create(file)) {
                long started = System.nanoTime();
                ByteBuffer buffer = ByteBuffer.allocateDirect(len);
                long received = 0;
                for (int count = from.read(buffer); count >= 0; count = from.read(buffer)) {
                    received += count;
                    buffer.flip();
                    while (to != null && buffer.hasRemaining()) {
                        to.write(buffer);
                    }
                    buffer.clear();
                }
                report(received, started);
            }
        }
    }

    private static FileChannel create(String file) throws IOException {
        return FileChannel.open(
                Path.of(file),
                StandardOpenOption.WRITE,
                StandardOpenOption.CREATE,
                StandardOpenOption.TRUNCATE_EXISTING);
    }

    private static void report(long bytes, long started) {
        double elapsed = (System.nanoTime() - started) / 1e9;
        System.out.printf(Locale.ROOT, "{\"bytes\": %d, \"elapsed_s\": %.9f}%n", bytes, elapsed);
    }
}
