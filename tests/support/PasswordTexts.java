import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

/** Kafka's encoder of passwords: lines of `encode|decode secret cipher keyLength text`, in base64. */
public class PasswordTexts {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ");
            PasswordEncoder encoder = PasswordEncoder.encrypting(
                new Password(text(parts[1])), parts[2].equals("-") ? null : parts[2], parts[3],
                Integer.parseInt(parts[4]), Integer.parseInt(parts[5]));
            String found;
            try {
                found = parts[0].equals("encode")
                    ? encoder.encode(new Password(text(parts[6])))
                    : encoder.decode(text(parts[6])).value();
            } catch (Exception error) {
                System.out.println("error");
                continue;
            }
            System.out.println(
                "=" + Base64.getEncoder().encodeToString(found.getBytes(StandardCharsets.UTF_8)));
        }
    }

    private static String text(String encoded) {
        byte[] bytes = Base64.getDecoder().decode(encoded.substring(1));
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
