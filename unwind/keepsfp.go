package unwind

import "bytes"

// framePointers gives code without call frame information the rule FP where it is plain
// that it keeps frame pointers: what V8 compiles ahead, its "embedded builtins", which is
// in the middle of Node's and Chromium's code as one piece of 1 to 2 MiB.
//
// The sign is how often functions begin by making a frame, at the multiples of 16 bytes
// where compilers put functions: in V8's code once in 2 KiB, and nowhere thinner than once
// in 16 KiB. Hand-written code without call frame information, as that of video codecs or
// of the dispatchers of OpenGL, has none, or one in 100 KiB. Code before the first
// one has no rule: it may belong to what is in front.
func (b *builder) framePointers() error {
	prologue := []byte("\x55\x48\x89\xe5") // push %rbp; mov %rsp, %rbp
	if b.file.machine == ARM64 {
		prologue = []byte("\xfd\x7b\xbf\xa9\xfd\x03\x00\x91") // stp x29, x30, [sp, #-16]!; mov x29, sp
	}
	for _, g := range b.gaps() {
		const least = 64 << 10
		if g.end-g.start < least {
			continue
		}
		var first, found off
		err := b.eachGap([]gap{g}, least, 16, func(at off, code []byte) {
			each(code, string(prologue), func(i int) {
				switch here := at + off(i); {
				case here%16 != 0:
				case found == 0:
					first, found = here, 1
				default:
					found++
				}
			})
		})
		if err != nil {
			return err
		}
		const seldom = 8 << 10
		if found > 0 && g.end-first >= least && (g.end-first)/found <= seldom {
			b.layer(Known).part().add(first, g.end, Rule{Kind: FP})
		}
	}
	return nil
}

// each calls found with where code has a pattern.
func each(code []byte, pattern string, found func(at int)) {
	for at := 0; ; {
		i := bytes.Index(code[at:], []byte(pattern))
		if i < 0 {
			return
		}
		found(at + i)
		at += i + len(pattern)
	}
}
