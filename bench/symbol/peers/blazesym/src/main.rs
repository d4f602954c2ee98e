// Prints what blazesym says of the addresses on standard input, as addr2line-peer does
// what that crate says; with -time N how long N passes over all of them take.
use blazesym::symbolize::{
    source::{Elf, Source},
    CodeInfo, Input, Symbolized, Symbolizer,
};
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::time::Instant;
fn parse(line: &str) -> Result<u64, Box<dyn Error>> {
    Ok(u64::from_str_radix(
        line.trim().trim_start_matches("0x"),
        16,
    )?)
}
fn frame(out: &mut dyn Write, name: &str, c: Option<&CodeInfo>) -> io::Result<()> {
    match c {
        Some(c) => writeln!(
            out,
            "{}\n{}:{}:{}",
            name,
            c.to_path().display(),
            c.line.unwrap_or(0),
            c.column.unwrap_or(0)
        ),
        None => writeln!(out, "{name}\n??:0:0"),
    }
}
fn main() -> Result<(), Box<dyn Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut passes = 0;
    if args.len() == 3 && args[0] == "-time" {
        passes = args[1].parse()?;
        args.drain(..2);
    }
    let src = Source::Elf(Elf::new(&args[0]));
    let sym = Symbolizer::builder()
        .enable_demangling(false)
        .enable_auto_reload(false)
        .enable_inlined_fns(true)
        .enable_code_info(true)
        .build();
    if passes > 0 {
        let addrs = io::stdin()
            .lock()
            .lines()
            .map(|l| parse(&l?))
            .collect::<Result<Vec<_>, _>>()?;
        let start = Instant::now();
        sym.symbolize_single(&src, Input::VirtOffset(addrs[0]))?;
        println!("{}", start.elapsed().as_nanos());
        for _ in 0..passes {
            let start = Instant::now();
            let mut sum = 0;
            for c in addrs.chunks(1000) {
                for s in sym.symbolize(&src, Input::VirtOffset(c))? {
                    if let Symbolized::Sym(s) = s {
                        sum += s.name.len()
                            + s.inlined.len()
                            + s.code_info.map_or(0, |c| c.line.unwrap_or(0) as usize);
                    }
                }
            }
            println!("{} {}", start.elapsed().as_nanos(), sum);
        }
        return Ok(());
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let a = parse(&line?)?;
        writeln!(out, "{a:#x}")?;
        if let Symbolized::Sym(s) = sym.symbolize_single(&src, Input::VirtOffset(a))? {
            for i in s.inlined.iter().rev() {
                frame(&mut out, &i.name, i.code_info.as_ref())?;
            }
            frame(&mut out, &s.name, s.code_info.as_deref())?;
        }
        writeln!(out)?;
    }
    Ok(out.flush()?)
}
