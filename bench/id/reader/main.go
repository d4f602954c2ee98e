// Command reader goes through the files of a list in one process, with a library
// for Go, and prints the nanoseconds of each pass.
//
//	reader LIST PASSES LIBRARY
package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"hallmark/buildid"
)

var libraries = map[string]func(string) error{
	"buildid":   readBuildID,
	"debug/elf": readDebugELF,
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 || libraries[os.Args[3]] == nil {
		log.Fatal("usage: reader LIST PASSES buildid|debug/elf")
	}
	list, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	passes, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	names := strings.Fields(string(list))
	for range passes {
		start := time.Now()
		for _, name := range names {
			if err := libraries[os.Args[3]](name); err != nil {
				log.Fatal(err)
			}
		}
		fmt.Println(time.Since(start).Nanoseconds())
	}
}

func readBuildID(name string) error {
	_, err := buildid.ReadFile(name)
	return err
}

// readDebugELF does with the standard library what is needed to find the note. A
// file that it refuses counts all the same.
func readDebugELF(name string) error {
	f, err := elf.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOTE {
			continue
		}
		if data, err := s.Data(); err == nil && bytes.Contains(data, []byte("\x03\x00\x00\x00GNU\x00")) {
			return nil
		}
	}
	return nil
}
