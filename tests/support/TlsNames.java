import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Names by Java and by Kafka. A line of standard input is `dn <certificate in base64>` or
 * `map <rules in base64> <name in base64>`; the answer is the name in base64, or `error`.
 */
public class TlsNames {
    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static String named(String[] words) throws Exception {
        if (words[0].equals("map")) {
            String name = words.length > 2 ? text(words[2]) : "";
            return SslPrincipalMapper.fromRules(text(words[1])).getName(name);
        }
        byte[] der = Base64.getDecoder().decode(words[1]);
        X509Certificate certificate = (X509Certificate) CertificateFactory.getInstance("X.509")
            .generateCertificate(new ByteArrayInputStream(der));
        return certificate.getSubjectX500Principal().getName();
    }

    public static void main(String[] none) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = lines.readLine()) != null;) {
            try {
                byte[] name = named(line.split(" ")).getBytes(StandardCharsets.UTF_8);
                System.out.println("=" + Base64.getEncoder().encodeToString(name));
            } catch (Exception error) {
                System.out.println("error");
            }
        }
    }
}
