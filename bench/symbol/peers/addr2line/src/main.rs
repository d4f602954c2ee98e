// What the crate addr2line says of addresses, and how fast.
//
//     addr2line-peer FILE <ADDRESSES          answers as llvm-symbolizer prints them
//     addr2line-peer -time N FILE <ADDRESSES  nanoseconds: to open, of N passes
//
// Addresses are virtual, hexadecimal, one a line. Each pass asks for all of them and
// looks at function, file and line of every frame.

use std::borrow::Cow;
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use object::{Object, ObjectSection};

type Slice = gimli::EndianSlice<'static, gimli::RunTimeEndian>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut passes = 0;
    if args.len() == 3 && args[0] == "-time" {
        passes = args[1].parse()?;
        args.drain(..2);
    }
    if args.len() != 1 {
        return Err("usage: addr2line-peer [-time N] FILE <ADDRESSES".into());
    }
    if passes == 0 {
        return print_answers(&open(&args[0])?);
    }
    let addresses = io::stdin().lock().lines().map(|l| parse(&l?)).collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    let context = open(&args[0])?;
    println!("{}", start.elapsed().as_nanos());
    for _ in 0..passes {
        let start = Instant::now();
        let sum = look_up(&context, &addresses)?;
        println!("{} {}", start.elapsed().as_nanos(), sum);
    }
    Ok(())
}

fn parse(line: &str) -> Result<u64, Box<dyn Error>> {
    Ok(u64::from_str_radix(line.trim().trim_start_matches("0x"), 16)?)
}

fn open(name: &str) -> Result<addr2line::Context<Slice>, Box<dyn Error>> {
    let map: &'static [u8] = Box::leak(Box::new(unsafe { memmap2::Mmap::map(&std::fs::File::open(name)?)? }));
    let file = object::File::parse(map)?;
    let endian = if file.is_little_endian() { gimli::RunTimeEndian::Little } else { gimli::RunTimeEndian::Big };
    let section = |id: gimli::SectionId| -> Result<Slice, Box<dyn Error>> {
        let data = match file.section_by_name(id.name()) {
            Some(s) => s.uncompressed_data()?,
            None => Cow::Borrowed(&[][..]),
        };
        let data: &'static [u8] = match data {
            Cow::Borrowed(b) => unsafe { std::mem::transmute::<&[u8], &'static [u8]>(b) },
            Cow::Owned(v) => Vec::leak(v),
        };
        Ok(gimli::EndianSlice::new(data, endian))
    };
    Ok(addr2line::Context::from_dwarf(gimli::Dwarf::load(section)?)?)
}

fn print_answers(context: &addr2line::Context<Slice>) -> Result<(), Box<dyn Error>> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let address = parse(&line?)?;
        writeln!(out, "{address:#x}")?;
        let mut frames = context.find_frames(address)?;
        while let Some(frame) = frames.next()? {
            let name = match &frame.function {
                Some(f) => f.raw_name()?,
                None => Cow::Borrowed("??"),
            };
            let at = frame.location.as_ref();
            writeln!(out, "{}\n{}:{}:{}", name,
                at.and_then(|l| l.file).unwrap_or("??"),
                at.and_then(|l| l.line).unwrap_or(0),
                at.and_then(|l| l.column).unwrap_or(0))?;
        }
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

/// Asks for everything, and returns something that depends on all of it.
fn look_up(context: &addr2line::Context<Slice>, addresses: &[u64]) -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    for &address in addresses {
        let mut frames = context.find_frames(address)?;
        while let Some(frame) = frames.next()? {
            if let Some(f) = &frame.function {
                sum += f.raw_name()?.len() as u64;
            }
            if let Some(at) = &frame.location {
                sum += at.line.unwrap_or(0) as u64 + at.file.map_or(0, str::len) as u64;
            }
        }
    }
    Ok(sum)
}
