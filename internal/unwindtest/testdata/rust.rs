// Rust: closures, sorting, hash maps, threads, and panics that are caught.
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

fn collatz(n: u64, seen: &mut HashMap<u64, u32>) -> u32 {
    if n <= 1 {
        return 0;
    }
    if let Some(&l) = seen.get(&n) {
        return l;
    }
    let l = 1 + collatz(if n % 2 == 0 { n / 2 } else { 3 * n + 1 }, seen);
    seen.insert(n, l);
    l
}

fn thrower(depth: u32, n: u32) -> u32 {
    let v: Vec<u32> = (0..depth + 1).collect();
    if depth == 0 {
        if n % 2 == 0 {
            std::panic::panic_any(n);
        }
        return n;
    }
    thrower(depth - 1, n) + v[(n % (depth + 1)) as usize]
}

fn sorting(n: u64) -> usize {
    let mut v: Vec<String> = (0..300).map(|i: u64| format!("{}", i * 7919 * (n + 1) % 100_003)).collect();
    v.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| b.cmp(a)));
    let tree: BTreeMap<_, _> = v.iter().enumerate().map(|(i, s)| (s.clone(), i)).collect();
    tree.values().step_by(3).sum()
}

fn work(end: Instant) -> u64 {
    let mut sum = 0u64;
    let mut n = 0u64;
    while Instant::now() < end {
        let mut seen = HashMap::new();
        for i in 0..100 {
            sum = sum.wrapping_add(collatz(n * 100 + i, &mut seen) as u64);
        }
        sum = sum.wrapping_add(sorting(n) as u64);
        for i in 0..5 {
            let r = std::panic::catch_unwind(|| thrower((n % 9) as u32, i));
            sum = sum.wrapping_add(r.unwrap_or(7) as u64);
        }
        n += 1;
    }
    sum
}

fn main() {
    let ms = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1000);
    std::panic::set_hook(Box::new(|_| {}));
    let end = Instant::now() + Duration::from_millis(ms);
    let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(move || work(end))).collect();
    let sum: u64 = threads.into_iter().map(|t| t.join().unwrap()).fold(0, u64::wrapping_add);
    std::hint::black_box(sum);
}
