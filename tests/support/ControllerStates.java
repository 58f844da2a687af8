import kafka.controller.ControllerState;
import scala.collection.Iterator;

/** Prints the metric of each state of Kafka's controller that has one. */
public class ControllerStates {
    public static void main(String[] none) {
        Iterator<ControllerState> states = ControllerState.values().iterator();
        while (states.hasNext()) {
            ControllerState state = states.next();
            if (state.rateAndTimeMetricName().isDefined())
                System.out.println(state.rateAndTimeMetricName().get());
        }
    }
}
