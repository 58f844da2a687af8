import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.auth.DigestAuthenticationProvider;

/**
 * What a client of any version since 3.4 does with a server, told line by line without ids, zxids
 * and times. After the line `restart` it waits for a line: the server was killed and started.
 */
public class ClientScript {
    interface Call {
        Object now() throws Exception;
    }

    static final int WAIT_S = 60;
    static final LinkedBlockingQueue<String> events = new LinkedBlockingQueue<>();
    static final LinkedBlockingQueue<Watcher.Event.KeeperState> states = new LinkedBlockingQueue<>();
    static String address;

    public static void main(String[] args) throws Exception {
        address = args[0];
        ZooKeeper client = connected(30_000);
        znodes(client);
        watches(client);
        multis(client);
        acls(client);
        restarts(client);
        client.close();
        ZooKeeper other = connected(30_000);
        tell("left after the end", () -> {
            List<String> names = new ArrayList<>(other.getChildren("/own", false));
            Collections.sort(names);
            return names;
        });
        other.close();
    }

    static ZooKeeper connected(int timeoutMs) throws Exception {
        ZooKeeper client = new ZooKeeper(address, timeoutMs, ClientScript::onEvent);
        reach(Watcher.Event.KeeperState.SyncConnected);
        return client;
    }

    static void onEvent(WatchedEvent event) {
        if (event.getType() == Watcher.Event.EventType.None) states.add(event.getState());
        else events.add(event.getType() + " " + event.getPath());
    }

    static void reach(Watcher.Event.KeeperState wanted) throws Exception {
        Watcher.Event.KeeperState state;
        do {
            state = states.poll(WAIT_S, TimeUnit.SECONDS);
            if (state == null) throw new IllegalStateException("never " + wanted);
        } while (state != wanted);
    }

    static void tell(String what, Call call) {
        try {
            System.out.println(what + ": " + call.now());
        } catch (KeeperException error) {
            System.out.println(what + ": " + error.code() + " " + error.getPath());
        } catch (Exception error) {
            System.out.println(what + ": " + error);
        }
        System.out.flush();
    }

    static String heard(int count) throws Exception {
        List<String> found = new ArrayList<>();
        for (int i = 0; i < count; i++) found.add(events.poll(WAIT_S, TimeUnit.SECONDS));
        return found.toString();
    }

    static String shown(Stat s) {
        if (s == null) return "none";
        return "version " + s.getVersion() + " cversion " + s.getCversion() + " aversion "
            + s.getAversion() + " length " + s.getDataLength() + " children " + s.getNumChildren()
            + " ephemeral " + (s.getEphemeralOwner() != 0) + " changed "
            + (s.getMzxid() != s.getCzxid());
    }

    static String made(ZooKeeper client, String path, CreateMode mode) throws Exception {
        return client.create(path, path.getBytes("UTF-8"), ZooDefs.Ids.OPEN_ACL_UNSAFE, mode);
    }

    static void znodes(ZooKeeper client) throws Exception {
        tell("create", () -> made(client, "/own", CreateMode.PERSISTENT));
        tell("again", () -> made(client, "/own", CreateMode.PERSISTENT));
        tell("no parent", () -> made(client, "/none/below", CreateMode.PERSISTENT));
        tell("ephemeral", () -> made(client, "/own/e", CreateMode.EPHEMERAL));
        tell("below an ephemeral", () -> made(client, "/own/e/x", CreateMode.PERSISTENT));
        tell("sequential", () -> made(client, "/own/s-", CreateMode.PERSISTENT_SEQUENTIAL));
        tell("ephemeral sequential", () -> made(client, "/own/s-", CreateMode.EPHEMERAL_SEQUENTIAL));
        Stat stat = new Stat();
        tell("data", () -> new String(client.getData("/own", false, stat), "UTF-8"));
        tell("stat", () -> shown(stat));
        tell("set", () -> shown(client.setData("/own", new byte[300], 0)));
        tell("set an old version", () -> shown(client.setData("/own", new byte[1], 0)));
        tell("set nothing", () -> shown(client.setData("/own", null, -1)));
        tell("nothing", () -> Arrays.toString(client.getData("/own", false, null)));
        tell("exists", () -> shown(client.exists("/own/e", false)));
        tell("exists not", () -> shown(client.exists("/none", false)));
        tell("children", () -> {
            Stat of = new Stat();
            List<String> names = new ArrayList<>(client.getChildren("/own", false, of));
            Collections.sort(names);
            return names + " " + shown(of);
        });
        tell("delete a parent", () -> { client.delete("/own", -1); return "done"; });
        tell("delete an old version", () -> { client.delete("/own/e", 7); return "done"; });
        tell("delete none", () -> { client.delete("/none", -1); return "done"; });
        tell("as large as may be", () -> shown(client.setData("/own", new byte[1_000_000], -1)));
        tell("small again", () -> shown(client.setData("/own", new byte[0], -1)));
        tell("a path of many letters", () ->
            made(client, "/own/\u00fc\u4e2d\u00a0\ud55c", CreateMode.PERSISTENT));
    }

    static void watches(ZooKeeper client) throws Exception {
        tell("watched", () -> client.exists("/own/w", true) + " " + client.getChildren("/own", true).size());
        made(client, "/own/w", CreateMode.PERSISTENT);
        tell("heard", () -> heard(2));
        client.getData("/own/w", true, null);
        client.setData("/own/w", new byte[0], -1);
        client.setData("/own/w", new byte[0], -1);
        tell("heard once", () -> heard(1) + " and " + events.size());
        client.getData("/own/w", true, null);
        client.getChildren("/own/w", true);
        client.delete("/own/w", -1);
        tell("heard of the end", () -> heard(1) + " and " + events.size());
    }

    static void multis(ZooKeeper client) throws Exception {
        List<ACL> open = ZooDefs.Ids.OPEN_ACL_UNSAFE;
        tell("multi", () -> told(client.multi(Arrays.asList(
            Op.create("/own/m", new byte[2], open, CreateMode.PERSISTENT),
            Op.create("/own/m/s-", new byte[0], open, CreateMode.PERSISTENT_SEQUENTIAL),
            Op.setData("/own/m", new byte[3], 0), Op.check("/own/m", 1)))));
        tell("multi that fails", () -> {
            try {
                return told(client.multi(Arrays.asList(
                    Op.setData("/own/m", new byte[4], -1), Op.check("/own/m", 9),
                    Op.delete("/own/m", -1))));
            } catch (KeeperException error) {
                return error.code() + " " + told(error.getResults());
            }
        });
        tell("as it was", () -> shown(client.exists("/own/m", false)));
        tell("transaction", () -> told(client.transaction()
            .delete("/own/m/s-0000000000", -1).delete("/own/m", -1).commit()));
    }

    static String told(List<OpResult> results) {
        List<String> found = new ArrayList<>();
        for (OpResult result : results) {
            String text = result.getClass().getSimpleName();
            if (result instanceof OpResult.CreateResult)
                text += " " + ((OpResult.CreateResult) result).getPath();
            if (result instanceof OpResult.SetDataResult)
                text += " " + shown(((OpResult.SetDataResult) result).getStat());
            if (result instanceof OpResult.ErrorResult)
                text += " " + ((OpResult.ErrorResult) result).getErr();
            found.add(text);
        }
        return found.toString();
    }

    static void acls(ZooKeeper client) throws Exception {
        Id id = new Id("digest", DigestAuthenticationProvider.generateDigest("ann:secret"));
        List<ACL> hers = Arrays.asList(new ACL(ZooDefs.Perms.ALL, id));
        ZooKeeper ann = connected(30_000);
        ann.addAuthInfo("digest", "ann:secret".getBytes("UTF-8"));
        tell("hers", () -> ann.create("/own/a", new byte[1], hers, CreateMode.PERSISTENT));
        tell("of her own", () ->
            ann.create("/own/b", new byte[1], ZooDefs.Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT));
        tell("of nobody", () -> client.create(
            "/own/c", new byte[1], ZooDefs.Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT));
        tell("a stranger reads", () -> client.getData("/own/a", false, null).length);
        tell("a stranger creates", () -> made(client, "/own/a/x", CreateMode.PERSISTENT));
        tell("she reads", () -> ann.getData("/own/a", false, null).length);
        tell("her ACL", () -> ann.getACL("/own/b", new Stat()).toString().trim());
        List<ACL> read = new ArrayList<>(hers);
        read.add(new ACL(ZooDefs.Perms.READ, ZooDefs.Ids.ANYONE_ID_UNSAFE));
        tell("for all to read", () -> shown(ann.setACL("/own/a", read, 0)));
        tell("an old version", () -> shown(ann.setACL("/own/a", read, 0)));
        tell("a stranger reads now", () -> client.getData("/own/a", false, null).length);
        tell("a stranger writes", () -> shown(client.setData("/own/a", new byte[2], -1)));
        tell("no scheme", () -> shown(ann.setACL(
            "/own/a", Arrays.asList(new ACL(1, new Id("none", "x"))), -1)));
        ann.close();
    }

    static void restarts(ZooKeeper client) throws Exception {
        long before = client.getSessionId();
        client.getData("/own/e", true, null);
        client.exists("/own/later", true);
        states.clear();
        System.out.println("restart");
        System.out.flush();
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        reach(Watcher.Event.KeeperState.Disconnected);
        reach(Watcher.Event.KeeperState.SyncConnected);
        tell("the same session", () -> client.getSessionId() == before);
        tell("its znode", () -> shown(client.exists("/own/e", false)));
        ZooKeeper other = connected(30_000);
        other.setData("/own/e", new byte[9], -1);
        tell("heard of data", () -> heard(1));
        made(other, "/own/later", CreateMode.PERSISTENT);
        tell("heard of a new one", () -> heard(1));
        tell("the next number", () -> made(other, "/own/s-", CreateMode.PERSISTENT_SEQUENTIAL));
        other.close();
    }
}
