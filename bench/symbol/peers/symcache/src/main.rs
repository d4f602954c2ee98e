// Prints what a symcache says of the addresses on standard input, as addr2line-peer does
// what that crate says; with -time N how long N passes over all of them take, and with
// -index OUT FILE it makes the symcache.
use std::error::Error;
use std::io::{self, BufRead, BufWriter, Write};
use std::time::Instant;
use symbolic_debuginfo::elf::ElfObject;
use symbolic_symcache::{SymCache, SymCacheConverter};
type R<T> = Result<T, Box<dyn Error>>;
fn parse(line: &str) -> R<u64> {
    Ok(u64::from_str_radix(
        line.trim().trim_start_matches("0x"),
        16,
    )?)
}
fn map(name: &str) -> R<&'static [u8]> {
    Ok(Box::leak(Box::new(unsafe {
        memmap2::Mmap::map(&std::fs::File::open(name)?)?
    })))
}
fn main() -> R<()> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    if args.len() == 3 && args[0] == "-index" {
        let object = ElfObject::parse(map(&args[2])?)?;
        let mut c = SymCacheConverter::new();
        c.process_object(&object)?;
        let mut w = BufWriter::new(std::fs::File::create(&args[1])?);
        c.serialize(&mut w)?;
        w.flush()?;
        std::fs::write(
            format!("{}.base", args[1]),
            format!("{:x}", object.load_address()),
        )?;
        return Ok(());
    }
    let mut passes = 0;
    if args.len() == 3 && args[0] == "-time" {
        passes = args[1].parse()?;
        args.drain(..2);
    }
    let base = parse(&std::fs::read_to_string(format!("{}.base", args[0]))?)?;
    if passes > 0 {
        let addrs = io::stdin()
            .lock()
            .lines()
            .map(|l| parse(&l?))
            .collect::<Result<Vec<_>, _>>()?;
        let start = Instant::now();
        let cache = SymCache::parse(map(&args[0])?)?;
        println!("{}", start.elapsed().as_nanos());
        for _ in 0..passes {
            let start = Instant::now();
            let mut sum = 0u64;
            for a in &addrs {
                for l in cache.lookup(a.wrapping_sub(base)) {
                    sum += l.line() as u64
                        + l.function().name().len() as u64
                        + l.file().map_or(0, |f| std::mem::size_of_val(&f) as u64);
                }
            }
            println!("{} {}", start.elapsed().as_nanos(), sum);
        }
        return Ok(());
    }
    let cache = SymCache::parse(map(&args[0])?)?;
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let a = parse(&line?)?;
        writeln!(out, "{a:#x}")?;
        for l in cache.lookup(a.wrapping_sub(base)) {
            writeln!(
                out,
                "{}\n{}:{}:0",
                l.function().name(),
                l.file().map_or("??".into(), |f| f.full_path()),
                l.line()
            )?;
        }
        writeln!(out)?;
    }
    Ok(out.flush()?)
}
