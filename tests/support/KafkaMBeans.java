import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/**
 * A broker of Apache Kafka that lists its MBeans: `port server.properties`. Whoever connects to the
 * port on 127.0.0.1 gets a line `name TAB attribute TAB value` for each attribute of each MBean of
 * Kafka's domains, and the end of the connection.
 */
public class KafkaMBeans {
    public static void main(String[] args) throws Exception {
        InetAddress loopback = InetAddress.getByName("127.0.0.1");
        ServerSocket listening = new ServerSocket(Integer.parseInt(args[0]), 8, loopback);
        Thread serving = new Thread(() -> {
            while (true) {
                try (Socket reader = listening.accept()) {
                    PrintStream out = new PrintStream(reader.getOutputStream(), false, "UTF-8");
                    list(out);
                    out.flush();
                } catch (Exception error) {
                    error.printStackTrace();
                }
            }
        });
        serving.setDaemon(true);
        serving.start();
        kafka.Kafka.main(new String[] {args[1]});
    }

    private static void list(PrintStream out) throws Exception {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        for (ObjectName name : server.queryNames(new ObjectName("kafka*:*"), null)) {
            for (MBeanAttributeInfo attribute : server.getMBeanInfo(name).getAttributes()) {
                Object value = server.getAttribute(name, attribute.getName());
                out.print(name + "\t" + attribute.getName() + "\t" + value + "\n");
            }
        }
    }
}
