"""What is made of the many lines that Java writes when it does not start."""

import pytest

from ottla.pipelines.java_process import reason

UNRESOLVED = """\
:: problems summary ::
\t\tmodule not found: org.apache.spark#spark-sql-kafka-0-10_2.13;4.2.0
:::: ERRORS
\tServer access error at url https://example.org/x.pom (java.net.SocketException: refused)
:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: \
org.apache.spark#spark-sql-kafka-0-10_2.13;4.2.0: not found]
\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:539)
"""
TOO_OLD = """\
Error: A JNI error has occurred, please check your installation and try again
Exception in thread "main" java.lang.UnsupportedClassVersionError: Main has been compiled by a \
more recent version of the Java Runtime
\tat java.lang.ClassLoader.defineClass1(Native Method)
"""


NO_JAR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 could not be fetched "
NO_HEAP = """\
Error: Invalid maximum heap size: -Xmx9z
Error: Could not create the Java Virtual Machine.
"""
NO_ROOM = "Error occurred during initialization of VM\nCould not reserve enough space\n"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (UNRESOLVED, NO_JAR + "(java.net.SocketException: refused)"),
        (UNRESOLVED.replace("Server access", "Other"), NO_JAR + "(no repository has it)"),
        (TOO_OLD, "java.lang.UnsupportedClassVersionError: Main has been compiled"),
        (NO_HEAP, "Invalid maximum heap size: -Xmx9z"),
        (NO_ROOM, "Could not reserve enough space"),
        ("spark-class: line 97: /x/bin/java: cannot execute\n", "/x/bin/java: cannot execute"),
        ("", "it said nothing"),
    ],
)
def test_the_reason_is_one_line(told, says):
    found = reason(told)
    assert says in found
    assert "\n" not in found
