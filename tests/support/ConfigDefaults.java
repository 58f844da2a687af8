import java.util.List;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigDef;

/** Prints name, type and default of Kafka's own settings, with tabs between; `~` is null. */
public class ConfigDefaults {
    static String text(Object value) {
        if (value == null) return "~";
        if (value instanceof Class) return ((Class<?>) value).getName();
        if (value instanceof List) {
            return ((List<?>) value).stream().map(Object::toString).collect(Collectors.joining(","));
        }
        return value.toString();
    }

    static void print(String of, ConfigDef settings) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(settings.configKeys()).values()) {
            boolean needed = key.defaultValue == ConfigDef.NO_DEFAULT_VALUE;
            String value = needed ? "(needed)" : text(key.defaultValue);
            System.out.println(String.join("\t", of, key.name, key.type.toString(), value));
        }
    }

    public static void main(String[] none) {
        print("broker", kafka.server.KafkaConfig$.MODULE$.configDef());
        print("topic", org.apache.kafka.storage.internals.log.LogConfig.configDefCopy());
    }
}
