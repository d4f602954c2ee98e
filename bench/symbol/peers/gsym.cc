// What LLVM's GSYM reader says of addresses, and how fast.
//
//     gsym-peer FILE.gsym <ADDRESSES          answers as llvm-symbolizer prints them
//     gsym-peer -time N FILE.gsym <ADDRESSES  nanoseconds: to open, of N passes
//
// Addresses are virtual, hexadecimal, one a line. Each pass asks for all of them and
// looks at function, file and line of every frame.

#include "llvm/DebugInfo/GSYM/GsymReader.h"
#include "llvm/DebugInfo/GSYM/LookupResult.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <iostream>
#include <string>
#include <vector>

using namespace llvm;
using gsym::GsymReader;
using Clock = std::chrono::steady_clock;

static long long nanoseconds(Clock::time_point since) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - since).count();
}

// Asks for everything, and returns something that depends on all of it.
static uint64_t lookUp(const GsymReader &reader, const std::vector<uint64_t> &addresses) {
  uint64_t sum = 0;
  for (uint64_t address : addresses) {
    auto result = reader.lookup(address);
    if (!result) {
      consumeError(result.takeError());
      continue;
    }
    for (const auto &frame : result->Locations)
      sum += frame.Name.size() + frame.Dir.size() + frame.Base.size() + frame.Line;
  }
  return sum;
}

static void printAnswers(const GsymReader &reader, const std::vector<uint64_t> &addresses) {
  for (uint64_t address : addresses) {
    outs() << "0x";
    outs().write_hex(address) << "\n";
    if (auto result = reader.lookup(address)) {
      for (size_t i = 0; i < result->Locations.size(); i++) {
        const auto &frame = result->Locations[i];
        std::string file = result->getSourceFile(i);
        outs() << frame.Name << "\n" << (file.empty() ? "??" : file) << ":" << frame.Line << ":0\n";
      }
    } else {
      consumeError(result.takeError());
    }
    outs() << "\n";
  }
}

int main(int argc, char **argv) {
  int passes = argc == 4 && std::string(argv[1]) == "-time" ? std::stoi(argv[2]) : 0;
  if (argc != (passes ? 4 : 2)) {
    std::cerr << "usage: gsym-peer [-time N] FILE.gsym <ADDRESSES\n";
    return 2;
  }
  std::vector<uint64_t> addresses;
  for (std::string line; std::getline(std::cin, line);)
    addresses.push_back(std::stoull(line, nullptr, 16));
  auto start = Clock::now();
  auto reader = GsymReader::openFile(argv[argc - 1]);
  if (!reader) {
    errs() << toString(reader.takeError()) << "\n";
    return 1;
  }
  if (!passes) {
    printAnswers(*reader, addresses);
    return 0;
  }
  std::cout << nanoseconds(start) << "\n";
  for (int i = 0; i < passes; i++) {
    start = Clock::now();
    uint64_t sum = lookUp(*reader, addresses);
    std::cout << nanoseconds(start) << " " << sum << "\n";
  }
}
