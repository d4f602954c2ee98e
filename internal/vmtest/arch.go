package vmtest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// An arch says how machines with one kind of processor are made.
type arch struct {
	name     string   // in GOARCH's words
	emulator string   // of QEMU
	machine  []string // the arguments for it
	events   []string // and those that tie the port of events to QEMU's standard output
	port     string   // that port in the guest
	boot     string   // of the kernel's command line: what only this architecture has
	magic    string   // in every image of a kernel,
	at       int      // at this offset
}

var arches = []arch{
	{
		// A busy machine fails the kernel's check of the timer.
		name:     "amd64",
		emulator: "qemu-system-x86_64",
		machine:  []string{"-M", "q35", "-cpu", "max"},
		events:   []string{"-serial", "stdio"},
		port:     "/dev/ttyS1", // ttyS0 is the kernel's
		boot:     "console=ttyS0 tsc=reliable vsyscall=xonly no_timer_check",
		magic:    "HdrS", at: 0x202, // Documentation/arch/x86/boot.rst
	},
	{
		// The processor has pointer authentication, by a cipher that costs the emulator
		// little; the machine has only one serial port.
		name:     "arm64",
		emulator: "qemu-system-aarch64",
		machine:  []string{"-M", "virt", "-cpu", "max,pauth-impdef=on"},
		events:   []string{"-device", "virtio-serial-pci", "-chardev", "stdio,id=events", "-device", "virtconsole,chardev=events"},
		port:     "/dev/hvc0",
		boot:     "console=ttyAMA0",
		magic:    "ARM\x64", at: 56, // Documentation/arch/arm64/booting.rst
	},
}

// CrossCompilers are the commands that stand for gcc where programs are made for an
// architecture that is not the machine's.
var CrossCompilers = map[string]string{"arm64": "aarch64-linux-gnu-gcc"}

// everyMachine are the arguments for machines of all architectures. Multi-threaded
// emulation of x86 panics while the kernel patches itself; a clock that follows the
// instructions (-icount) lets 5.10 wait for its second processor for ever. The
// initramfs is twice in the memory while it is unpacked.
var everyMachine = []string{
	"-smp", "2", "-m", "1536M", "-accel", "tcg,thread=single",
	"-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-net", "none", "-no-reboot",
}

// everyKernel is on the command line of all kernels. BPF is asked for by name because
// it is not in every kernel's own list of security modules.
const everyKernel = "quiet panic=-1 mitigations=off nokaslr random.trust_cpu=on lsm=lockdown,capability,landlock,bpf"

// Arches returns the architectures that machines can have, in GOARCH's words.
func Arches() []string {
	var names []string
	for _, a := range arches {
		names = append(names, a.name)
	}
	return names
}

// Port is where events go in a guest that this program is in.
func Port() string {
	i := slices.IndexFunc(arches, func(a arch) bool { return a.name == runtime.GOARCH })
	return arches[i].port
}

// archOf returns the architecture that the image of a kernel is for.
func archOf(kernel string) (arch, error) {
	f, err := os.Open(kernel)
	if err != nil {
		return arch{}, err
	}
	defer f.Close()
	head := make([]byte, 4096)
	if _, err := io.ReadFull(f, head); err != nil {
		return arch{}, fmt.Errorf("%s: %w", kernel, err)
	}
	for _, a := range arches {
		if bytes.HasPrefix(head[a.at:], []byte(a.magic)) {
			return a, nil
		}
	}
	return arch{}, fmt.Errorf("%s is no kernel that a machine here boots", kernel)
}

// command returns what runs a machine of the architecture with a disk that is in a file, and
// the kernel's console into a file. The disk need not outlive the machine.
func (a arch) command(kernel, initrd, disk, console string) (name string, args []string) {
	return a.emulator, slices.Concat(a.machine, everyMachine, []string{
		"-kernel", kernel, "-initrd", initrd, "-append", a.boot + " " + everyKernel,
		"-drive", "if=none,id=disk,format=raw,cache=unsafe,file=" + disk, "-device", "nvme,serial=disk,drive=disk",
		"-serial", "file:" + console,
	}, a.events)
}

// A System is what the guest for a kernel is made of.
type System struct {
	Arch string // in GOARCH's words
	Root string // what its programs and libraries are below
}

// SystemFor returns the system of this machine for kernels of its architecture; for
// others the one that lies beside the kernel, under the architecture's name.
func SystemFor(kernel string) (System, error) {
	a, err := archOf(kernel)
	if err != nil || a.name == runtime.GOARCH {
		return System{Arch: a.name, Root: "/"}, err
	}
	return System{a.name, filepath.Join(filepath.Dir(kernel), a.name)}, nil
}
