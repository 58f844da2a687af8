import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;

/**
 * Places replicas by Kafka's own AdminUtils. A line of standard input is
 * `partitions factor start first-partition broker[:rack]...`; the answer is `0=1,2 1=2,0 ...`, or
 * `error` and the exception's message.
 */
public class Placement {
    public static void main(String[] none) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = lines.readLine()) != null;) {
            String[] words = line.split(" ");
            List<BrokerMetadata> brokers = new ArrayList<>();
            for (int i = 4; i < words.length; i++) {
                String[] broker = words[i].split(":");
                Optional<String> rack = broker.length > 1 ? Optional.of(broker[1]) : Optional.empty();
                brokers.add(new BrokerMetadata(Integer.parseInt(broker[0]), rack));
            }
            try {
                Map<Integer, List<Integer>> placed = AdminUtils.assignReplicasToBrokers(
                    brokers, Integer.parseInt(words[0]), Integer.parseInt(words[1]),
                    Integer.parseInt(words[2]), Integer.parseInt(words[3]));
                System.out.println(new TreeMap<>(placed).entrySet().stream()
                    .map(e -> e.getKey() + "=" + e.getValue().stream().map(Object::toString)
                        .collect(Collectors.joining(",")))
                    .collect(Collectors.joining(" ")));
            } catch (Exception error) {
                System.out.println("error " + error.getMessage());
            }
        }
    }
}
