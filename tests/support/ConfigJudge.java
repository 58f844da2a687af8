import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.storage.internals.log.LogConfig;
import scala.Option;

/**
 * Reads `broker|topic|file|dynamic|dynamic-own TAB base64 of a properties file` lines and prints, as one line of JSON
 * each, what Kafka makes of it: `{"values": {...}}` of the keys in the file, or `{"error": "..."}`.
 */
public class ConfigJudge {
    static final Properties BROKER = new Properties();
    static {
        BROKER.setProperty("zookeeper.connect", "unused:2181");
        BROKER.setProperty("broker.id", "0");
        BROKER.setProperty("listeners", "PLAINTEXT://127.0.0.1:9092");
    }

    static String json(Object value) {
        if (value == null || value instanceof Boolean || value instanceof Integer
            || value instanceof Long || value instanceof Short) return String.valueOf(value);
        if (value instanceof Password) return json(((Password) value).value());
        if (value instanceof Class) return json(((Class<?>) value).getName());
        StringBuilder out = new StringBuilder();
        if (value instanceof List) {
            for (Object part : (List<?>) value) out.append(out.length() == 0 ? "" : ",").append(json(part));
            return "[" + out + "]";
        }
        out.append('"');
        for (char c : value.toString().toCharArray()) {
            if (c < 32 || c > 126 || c == '"' || c == '\\') out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.append('"').toString();
    }

    static String object(Map<?, ?> values, Iterable<?> names) {
        StringBuilder out = new StringBuilder();
        for (Object name : names) {
            out.append(out.length() == 0 ? "" : ",").append(json(name)).append(":").append(json(values.get(name)));
        }
        return "{\"values\":{" + out + "}}";
    }

    static String judge(String kind, Path file) throws Exception {
        Properties given = Utils.loadProps(file.toString());
        TreeSet<Object> names = new TreeSet<>(given.keySet());
        if (kind.equals("file")) return object(given, names);
        if (kind.equals("topic")) {
            LogConfig.validate(Map.of(), given, KafkaConfig.fromProps(BROKER, false).extractLogConfigMap(), false, true);
            return object(new LogConfig(given).values(), names);
        }
        if (kind.startsWith("dynamic")) {
            KafkaConfig broker = KafkaConfig.fromProps(BROKER, false);
            broker.dynamicConfig().initialize(Option.empty(), Option.empty());
            broker.dynamicConfig().validate(given, kind.equals("dynamic-own"));
            return object(given, names);
        }
        KafkaConfig config = KafkaConfig.fromProps(given, false);
        LogConfig.validateBrokerLogConfigValues(config.extractLogConfigMap(), false);
        new LogConfig(config.extractLogConfigMap());
        return object(config.values(), names);
    }

    public static void main(String[] none) throws Exception {
        Path file = Files.createTempFile("config-judge", ".properties");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            Files.write(file, Base64.getDecoder().decode(parts[1]));
            try {
                System.out.println(judge(parts[0], file));
            } catch (Throwable error) {
                System.out.println("{\"error\":" + json(String.valueOf(error.getMessage())) + "}");
            }
        }
        Files.delete(file);
    }
}
