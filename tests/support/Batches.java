import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.zip.CRC32;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * What Kafka does with produced bytes: its broker's checks, then its consumer's reader.
 *
 * Of each item of the file given (length, flags of the topic, its codec or -1, bytes) a line tells
 * the broker's error code, a CRC of what it stores, and a CRC of the records as they are read, or
 * "unreadable". With a second argument the errors' texts follow.
 */
public class Batches {
    static final long NOW = 1_700_000_000_000L;
    static final long HOUR = 3_600_000L;
    static final TopicPartition PARTITION = new TopicPartition("t", 0);
    static final Time STANDING = (Time) Proxy.newProxyInstance(
        Batches.class.getClassLoader(), new Class<?>[] {Time.class},
        (proxy, method, arguments) ->
            method.getName().equals("milliseconds") ? (Object) NOW : (Object) 0L);
    static final LogValidator.MetricsRecorder UNCOUNTED = new LogValidator.MetricsRecorder() {
        public void recordInvalidMagic() { }
        public void recordInvalidOffset() { }
        public void recordInvalidSequence() { }
        public void recordInvalidChecksums() { }
        public void recordNoKeyCompactedTopic() { }
    };

    static MemoryRecords stored(byte[] produced, int flags, int codec) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(produced));
        ProduceRequest.validateRecords((short) 9, records);
        CompressionType source = CompressionType.NONE;
        int size = 0;
        for (MutableRecordBatch batch : records.batches()) {  // as UnifiedLog does
            if (batch.baseOffset() != 0)
                throw new InvalidRecordException("base offset " + batch.baseOffset());
            batch.ensureValid();
            source = batch.compressionType();
            size += batch.sizeInBytes();
        }
        records = MemoryRecords.readableRecords(ByteBuffer.wrap(produced, 0, size).slice());
        Compression target = codec < 0
            ? Compression.of(source).build() : Compression.of(CompressionType.forId(codec)).build();
        long bound = (flags & 4) != 0 ? HOUR : Long.MAX_VALUE;
        return new LogValidator(
            records, PARTITION, STANDING, source, target, (flags & 2) != 0, (byte) 2,
            (flags & 1) != 0 ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
            bound, bound, 0, AppendOrigin.CLIENT, MetadataVersion.IBP_3_9_IV0
        ).validateMessagesAndAssignOffsets(
            PrimitiveRef.ofLong(0), UNCOUNTED, BufferSupplier.NO_CACHING).validatedRecords;
    }

    static void number(CRC32 crc, long number) {
        crc.update((number + " ").getBytes(StandardCharsets.US_ASCII));
    }

    static void bytes(CRC32 crc, ByteBuffer bytes) {
        number(crc, bytes == null ? -1 : bytes.remaining());
        if (bytes != null)
            crc.update(bytes);
    }

    static String read(MemoryRecords records) {
        CRC32 crc = new CRC32();
        for (RecordBatch batch : records.batches())
            try (CloseableIterator<Record> all = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
                while (all.hasNext()) {
                    Record record = all.next();
                    number(crc, record.offset());
                    number(crc, record.timestamp());
                    bytes(crc, record.key());
                    bytes(crc, record.value());
                    for (Header header : record.headers()) {
                        boolean odd = header.key().indexOf('\ufffd') >= 0;
                        String key = odd ? "?" : header.key();
                        bytes(crc, ByteBuffer.wrap(key.getBytes(StandardCharsets.UTF_8)));
                        byte[] value = header.value();
                        bytes(crc, value == null ? null : ByteBuffer.wrap(value));
                    }
                }
            }
        return Long.toHexString(crc.getValue());
    }

    static String why(Throwable error, boolean texts) {
        return texts ? " " + (error + " < " + error.getCause()).replace('\n', ' ') : "";
    }

    public static void main(String[] arguments) throws Exception {
        boolean texts = arguments.length > 1;
        PrintStream out = new PrintStream(System.out, false);
        try (DataInputStream in = new DataInputStream(
                new BufferedInputStream(new FileInputStream(arguments[0]), 1 << 16))) {
            while (in.available() > 0) {
                byte[] produced = new byte[in.readInt()];
                int flags = in.readByte();
                int codec = in.readByte();
                in.readFully(produced);
                MemoryRecords records;
                try {
                    records = stored(produced, flags, codec);
                } catch (Throwable error) {
                    Throwable cause = error instanceof RecordValidationException
                        ? ((RecordValidationException) error).invalidException() : error;
                    out.println(Errors.forException(cause).code() + " - -" + why(cause, texts));
                    continue;
                }
                CRC32 crc = new CRC32();
                crc.update(records.buffer().duplicate());
                String content;
                try {
                    content = read(records);
                } catch (Throwable error) {
                    content = "unreadable" + why(error, texts);
                }
                out.println("0 " + Long.toHexString(crc.getValue()) + " " + content);
            }
        }
        out.flush();
    }
}
