import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in one JVM, whose start is most of what each
 * of them costs. A line of standard input is a class and its arguments, with tabs between; the
 * answer is a line `exit-code length` and so many bytes of what the tool printed.
 */
public class RunTools {
    static final class Ended extends RuntimeException {
        Ended() {
            super(null, null, false, false);
        }
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        // One stream for all: Scala's Console keeps the first one it sees.
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream out = new PrintStream(printed, true, "UTF-8");
        System.setOut(out);
        System.setErr(out);
        // Some tools catch what ends them and end once more: the first time counts.
        Integer[] ended = new Integer[2];
        Exit.Procedure end = (code, message) -> {
            if (ended[0] == null) {
                out.flush();
                ended[0] = code;
                ended[1] = printed.size();
            }
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = lines.readLine()) != null;) {
            String[] words = line.split("\t", -1);
            printed.reset();
            ended[0] = ended[1] = null;
            try {
                Object arguments = Arrays.copyOfRange(words, 1, words.length);
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, arguments);
            } catch (InvocationTargetException error) {
                if (!(error.getCause() instanceof Ended)) {
                    ended[0] = 1;
                    error.getCause().printStackTrace(out);
                }
            }
            out.flush();
            int code = ended[0] == null ? 0 : ended[0];
            int length = ended[1] == null ? printed.size() : ended[1];
            answers.print(code + " " + length + "\n");
            answers.write(printed.toByteArray(), 0, length);
            answers.flush();
        }
    }
}
