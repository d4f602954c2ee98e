package live

import (
	"context"
	"errors"
	"os"
	"strings"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/procmap"
	"hallmark/reason"
	"hallmark/symbol"
)

// kernel answers for the addresses of the running kernel.
type kernel struct {
	symbols    *symbol.Kallsyms // nil if there are none
	why        reason.Reason    // why there are none
	identities map[string]procmap.Identity

	library *debuginfo.Library
	image   debuginfo.Symbols // of vmlinux; nil if it is not found, or not looked for
	looked  bool
}

// readKernel reads what the kernel shows of itself to this user.
func readKernel(library *debuginfo.Library) *kernel {
	k := &kernel{why: reason.KernelHidden, identities: map[string]procmap.Identity{}, library: library}
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return k
	}
	defer f.Close()
	symbols, err := symbol.ReadKallsyms(f)
	switch {
	case err != nil:
		k.why = reason.BadSymbols
	case !symbols.Hidden():
		k.symbols = symbols
	}
	return k
}

func (k *kernel) place(a addr.Abs) Location {
	if k.symbols == nil {
		return Location{
			Addr: a, Name: "[kernel]",
			Identity: procmap.Identity{Reason: k.why}, Symbol: symbol.Miss(k.why),
		}
	}
	place := Location{Addr: a, Symbol: k.symbols.Lookup(a)}
	module, known := k.symbols.Module(a)
	inImage := k.symbols.Stext() <= a && a < k.symbols.Etext()
	switch {
	case module != "":
		place.Name = "[" + module + "]"
		place.Identity = k.identity(module)
	case known || inImage:
		place.Name = "[kernel]"
		place.Identity = k.identity("")
		if r := k.inImage(a); len(r.Frames) > 0 {
			place.Symbol = r
		}
	default:
		place.Identity.Reason = reason.ModuleUnknown
	}
	return place
}

// inImage answers from the kernel's vmlinux, which knows lines and inlined calls.
func (k *kernel) inImage(a addr.Abs) symbol.Result {
	id := k.identity("").ID
	if !k.looked && !id.IsZero() {
		k.looked = true
		k.image, _ = k.library.OpenKernel(context.Background(), id, 0)
	}
	text := k.symbols.Text()
	if k.image == nil || text == 0 || a < text {
		return symbol.Miss(reason.NoFile)
	}
	return k.image.LookupOffset(addr.Offset(a - text))
}

func (k *kernel) Close() error {
	if k.image == nil {
		return nil
	}
	return k.image.Close()
}

// identity returns the identity of the kernel image, which has no module's name,
// or of a module.
func (k *kernel) identity(module string) procmap.Identity {
	id, ok := k.identities[module]
	if !ok {
		id = readIdentity(module)
		k.identities[module] = id
	}
	return id
}

func readIdentity(module string) procmap.Identity {
	var info buildid.Info
	var err error
	switch {
	case module == "":
		info, err = buildid.ReadKernel()
	case module == "bpf" || strings.HasPrefix(module, "__builtin__"):
		return procmap.Identity{Reason: reason.Anonymous} // code that the kernel generated
	default:
		info, err = buildid.ReadModule(module)
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return procmap.Identity{Reason: reason.NotPermitted}
	case err != nil:
		return procmap.Identity{Reason: reason.ModuleUnknown}
	}
	return procmap.Identity{Info: info}
}
