package symbol

import (
	"hallmark/internal/defect"
	"hallmark/reason"
)

// containPanic is deferred where readers of a file with this name begin. A panic of theirs
// becomes an error.
func containPanic(name string, err *error) {
	if defect.Escapes() {
		return
	}
	if v := recover(); v != nil {
		*err = &FormatError{Name: name, Err: defect.Caught(v)}
	}
}

// contained calls f, whose panic becomes an error of the file with this name.
func contained(name string, f func() error) (err error) {
	defer containPanic(name, &err)
	return f()
}

// containMiss is deferred where an address is looked up. A panic becomes the reason why
// nothing is known.
func containMiss(r *Result) {
	if defect.Escapes() {
		return
	}
	if recover() != nil {
		*r = Miss(reason.Defect)
	}
}

// containMisses is containMiss for n addresses.
func containMisses(results *[]Result, n int) {
	if defect.Escapes() {
		return
	}
	if recover() != nil {
		*results = make([]Result, n)
		for i := range *results {
			(*results)[i] = Miss(reason.Defect)
		}
	}
}

// containName is deferred where a name is made readable. A panic leaves it as it is.
func containName(readable *string, name string) {
	if defect.Escapes() {
		return
	}
	if recover() != nil {
		*readable = name
	}
}
