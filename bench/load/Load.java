import java.util.*;
import java.util.stream.*;

/** Sorts, maps and joins for some seconds. */
class Load {
	public static void main(String[] args) {
		long end = System.nanoTime() + 5_000_000_000L, sum = 0;
		while (System.nanoTime() < end) {
			List<String> words = IntStream.range(0, 20000).mapToObj(i -> "word " + i * 7919L % 104729).collect(Collectors.toList());
			Collections.sort(words);
			Map<String, Integer> counts = new HashMap<>();
			for (String w : words) counts.merge(w.substring(0, 6), 1, Integer::sum);
			sum += counts.hashCode() + String.join(",", words).hashCode();
		}
		System.out.println(sum);
	}
}
