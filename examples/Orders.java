import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Stands for your application, of which test_java_client.py is the test. */
public class Orders {
    /** Arguments: write BOOTSTRAP FIRST COUNT, or read BOOTSTRAP COUNT. */
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        if (arguments[0].equals("write")) {
            write(bootstrap, Integer.parseInt(arguments[2]), Integer.parseInt(arguments[3]));
        } else {
            read(bootstrap, Integer.parseInt(arguments[2]));
        }
    }

    static void write(String bootstrap, int first, int count) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        try (var producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = first; number < first + count; number++) {
                String customer = "customer-" + number % 5;
                // get() waits until the brokers have acknowledged the order, and throws if not.
                producer.send(new ProducerRecord<>("orders", customer, "order " + number)).get();
            }
        }
    }

    /** Prints so many orders, as a member of a group; close() commits what was read. */
    static void read(String bootstrap, int count) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", "billing");
        settings.put("auto.offset.reset", "earliest");
        try (var consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            for (int found = 0; found < count; ) {
                for (var order : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(order.value());
                    found++;
                }
            }
        }
    }
}
