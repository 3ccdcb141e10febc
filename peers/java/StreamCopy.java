import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Locale;

/**
 * A file over TCP the traditional way: from one stream into an array and from there to another
 * stream. Sender and receiver.
 *
 * <p>Tells on standard output, as one line of JSON, how many bytes were moved in how many seconds.
 * Ends with 0, with 1 and a reason on standard error, or with 2 if called wrongly.
 */
public final class StreamCopy {
    public static void main(String[] args) {
        try {
            if (args.length == 5 && args[0].equals("send")) {
                send(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]));
            } else if (args.length == 4 && args[0].equals("receive")) {
                receive(args[1], args[2], Integer.parseInt(args[3]));
            } else {
                System.err.println("usage: send FILE HOST PORT BUFFER | receive HOST FILE|- BUFFER");
                System.exit(2);
            }
        } catch (IOException | NumberFormatException failure) {
            System.err.println(failure);
            System.exit(1);
        }
    }

    private static void send(String file, String host, int port, int len) throws IOException {
        try (InputStream from = new FileInputStream(file);
                Socket socket = new Socket(host, port);
                OutputStream to = socket.getOutputStream()) {
            long started = System.nanoTime();
            report(copy(from, to, len), started);
        }
    }

    private static void receive(String host, String file, int len) throws IOException {
        try (ServerSocket listener = new ServerSocket()) {
            listener.bind(new InetSocketAddress(InetAddress.getByName(host), 0));
            System.err.println("listening on " + host + ":" + listener.getLocalPort());
            try (OutputStream to =
                            file.equals("-")
                                    ? OutputStream.nullOutputStream()
                                    : new FileOutputStream(file);
                    Socket socket = listener.accept();
                    InputStream from = socket.getInputStream()) {
                long started = System.nanoTime();
                report(copy(from, to, len), started);
            }
        }
    }

    private static long copy(InputStream from, OutputStream to, int len) throws IOException {
        byte[] buffer = new byte[len];
        long copied = 0;
        for (int count = from.read(buffer); count >= 0; count = from.read(buffer)) {
            to.write(buffer, 0, count);
            copied += count;
        }
        return copied;
    }

    private static void report(long bytes, long started) {
        double elapsed = (System.nanoTime() - started) / 1e9;
        System.out.printf(Locale.ROOT, "{\"bytes\": %d, \"elapsed_s\": %.9f}%n", bytes, elapsed);
    }
}
