import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import kafka.security.authorizer.AclAuthorizer;
import kafka.security.authorizer.AclAuthorizer.VersionedAcls;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Asks Kafka's own AclAuthorizer, without ZooKeeper: its cache is filled by what it calls when
 * ZooKeeper's ACLs change. Lines of standard input, their words between tabs:
 * `new allow-if-none super-user...`, `acl type pattern name principal host operation permission`,
 * `ask principal host operation type name`, `any principal host operation type`. Each question is
 * answered by a line, `1` or `0`.
 */
public class Authorizer {
    public static void main(String[] none) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        StringBuilder answers = new StringBuilder();
        AclAuthorizer authorizer = null;
        Map<ResourcePattern, Set<AclEntry>> acls = new HashMap<>();
        boolean changed = false;
        for (String line; (line = lines.readLine()) != null;) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("new")) {
                authorizer = new AclAuthorizer();
                acls.clear();
                Set<KafkaPrincipal> users = new HashSet<>();
                for (int i = 2; i < words.length; i++)
                    users.add(SecurityUtils.parseKafkaPrincipal(words[i]));
                set(authorizer, "superUsers", CollectionConverters.asScala(users).toSet());
                set(authorizer, "shouldAllowEveryoneIfNoAclIsFound", words[1].equals("true"));
            } else if (words[0].equals("acl")) {
                ResourcePattern pattern = new ResourcePattern(
                    ResourceType.fromCode(Byte.parseByte(words[1])), words[3],
                    PatternType.fromCode(Byte.parseByte(words[2])));
                acls.computeIfAbsent(pattern, p -> new HashSet<>()).add(new AclEntry(
                    new AccessControlEntry(words[4], words[5],
                        AclOperation.fromCode(Byte.parseByte(words[6])),
                        AclPermissionType.fromCode(Byte.parseByte(words[7])))));
                changed = true;
            } else {
                if (changed)
                    for (Map.Entry<ResourcePattern, Set<AclEntry>> one : acls.entrySet())
                        authorizer.updateCache(one.getKey(), new VersionedAcls(
                            CollectionConverters.asScala(one.getValue()).<AclEntry>toSet(), 0));
                changed = false;
                AclOperation operation = AclOperation.fromCode(Byte.parseByte(words[3]));
                ResourceType type = ResourceType.fromCode(Byte.parseByte(words[4]));
                AuthorizableRequestContext who = client(words[1], words[2]);
                AuthorizationResult result;
                if (words[0].equals("any")) {
                    result = authorizer.authorizeByResourceType(who, operation, type);
                } else {
                    ResourcePattern resource =
                        new ResourcePattern(type, words[5], PatternType.LITERAL);
                    List<Action> actions = new ArrayList<>();
                    actions.add(new Action(operation, resource, 1, true, true));
                    result = authorizer.authorize(who, actions).get(0);
                }
                answers.append(result == AuthorizationResult.ALLOWED ? "1\n" : "0\n");
            }
        }
        System.out.print(answers);
    }

    private static void set(AclAuthorizer authorizer, String name, Object value) throws Exception {
        Field field = AclAuthorizer.class.getDeclaredField(name);
        field.setAccessible(true);
        field.set(authorizer, value);
    }

    private static AuthorizableRequestContext client(String principal, String host)
            throws Exception {
        InetAddress address = InetAddress.getByName(host);
        KafkaPrincipal who = SecurityUtils.parseKafkaPrincipal(principal);
        return new AuthorizableRequestContext() {
            public String listenerName() { return "L"; }
            public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
            public KafkaPrincipal principal() { return who; }
            public InetAddress clientAddress() { return address; }
            public int requestType() { return 3; }
            public int requestVersion() { return 0; }
            public String clientId() { return "c"; }
            public int correlationId() { return 1; }
        };
    }
}
