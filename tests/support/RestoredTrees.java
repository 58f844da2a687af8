import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/**
 * What ZooKeeper's own classes restore from data folders: a line of standard input is a folder. Of
 * each one it prints either `refused` and why, or `zxid`, `session` and `znode` lines, and then
 * `end`. Fields have tabs between them; data is in hex.
 */
public class RestoredTrees {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] none) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String folder = in.readLine(); folder != null; folder = in.readLine()) {
            try {
                out.print(restored(new File(folder)));
            } catch (Exception | AssertionError problem) {
                out.println("refused\t" + String.valueOf(problem).replaceAll("\\s+", " "));
            }
            out.println("end");
        }
        out.flush();
    }

    static String restored(File folder) throws Exception {
        DataTree tree = new DataTree();
        Map<Long, Integer> sessions = new ConcurrentHashMap<>();
        FileTxnSnapLog files = new FileTxnSnapLog(folder, folder);
        StringBuilder text = new StringBuilder();
        try {
            long zxid = files.restore(tree, sessions, (header, record, digest) -> {});
            text.append("zxid\t" + zxid + "\t" + tree.getTreeDigest() + "\n");
        } finally {
            files.close();
        }
        sessions.forEach((id, timeout) -> text.append("session\t" + id + "\t" + timeout + "\n"));
        add(text, tree, "/");
        return text.toString();
    }

    static void add(StringBuilder text, DataTree tree, String path) throws Exception {
        Stat s = new Stat();
        byte[] data = tree.getData(path, s, null);
        text.append("znode\t" + path + "\t" + (data == null ? "null" : HEX.formatHex(data)));
        for (long number : new long[] {
                s.getCzxid(), s.getMzxid(), s.getCtime(), s.getMtime(), s.getVersion(), s.getCversion(),
                s.getAversion(), s.getEphemeralOwner(), s.getDataLength(), s.getNumChildren(),
                s.getPzxid()})
            text.append("\t" + number);
        text.append("\t" + HEX.formatHex(encoded(tree.getACL(path, new Stat()))) + "\n");
        for (String child : tree.getChildren(path, null, null))
            add(text, tree, path.equals("/") ? "/" + child : path + "/" + child);
    }

    /** As in a create request. */
    static byte[] encoded(List<ACL> entries) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeInt(entries.size());
        for (ACL entry : entries) {
            out.writeInt(entry.getPerms());
            for (String part : new String[] {entry.getId().getScheme(), entry.getId().getId()}) {
                byte[] text = part.getBytes(StandardCharsets.UTF_8);
                out.writeInt(text.length);
                out.write(text);
            }
        }
        return bytes.toByteArray();
    }
}
