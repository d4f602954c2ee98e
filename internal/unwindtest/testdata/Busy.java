import java.util.*;
import java.util.stream.*;

/** The interpreter, compiled code, and native code of the class library. */
public class Busy {
    static int deep(int n) { return n == 0 ? 0 : IntStream.of(n - 1).map(Busy::deep).sum() + 1; }

    static int thrower(int n) {
        if (n == 0) throw new IllegalStateException();
        return thrower(n - 1) + 1;
    }

    public static void main(String[] args) throws Exception {
        long end = System.currentTimeMillis() + (args.length > 0 ? Long.parseLong(args[0]) : 1000);
        long sum = 0;
        for (int n = 0; System.currentTimeMillis() < end; n++) {
            final int k = n;
            List<String> words = IntStream.range(0, 300).mapToObj(i -> Integer.toString(i * 7919 * (k + 1) % 100003)).collect(Collectors.toList());
            words.sort(Comparator.comparing(String::length).thenComparing(Comparator.reverseOrder()));
            sum += words.hashCode() + deep(n % 30);
            try {
                sum += thrower(n % 20);
            } catch (IllegalStateException e) {
                sum += e.getStackTrace().length;
            }
            java.util.zip.CRC32 crc = new java.util.zip.CRC32();
            crc.update(String.join(",", words).getBytes("UTF-8"));
            java.util.zip.Deflater d = new java.util.zip.Deflater();
            d.setInput(String.join(",", words).getBytes("UTF-8"));
            d.finish();
            sum += crc.getValue() + d.deflate(new byte[10000]);
            d.end();
        }
        System.err.print(sum == 42 ? "!" : "");
    }
}
