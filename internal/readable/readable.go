// Package readable turns linkage names of C++ and Rust into names for people. It does so
// by the library github.com/ianlancetaylor/demangle, and corrects three of its mistakes:
//
//   - In an unresolved name ("sr", a name with template arguments, "E") it takes the name
//     for something that later parts of the linkage name can refer to. All their
//     references are then off by one: basic_string<__is_char> for basic_string<char>.
//   - Where an expansion names two packs, or one of them twice, it replaces only the first
//     one by its element, and writes all of the other.
//   - It writes a comma for an expansion of nothing at the end of a pack.
//
// Where a name has the first mistake and it cannot be corrected, the name stays as it is.
package readable

import (
	"errors"
	"slices"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// errUncertain says that the library would misread a name.
var errUncertain = errors.New("the references in the name cannot be resolved")

// String returns the name for people that a linkage name stands for.
func String(name string, options ...demangle.Option) (string, error) {
	if isRust(name) {
		return demangle.ToString(name, options...)
	}
	tree, err := Tree(name, options...)
	if err != nil {
		return "", err
	}
	return demangle.ASTToString(tree, options...), nil
}

// Tree returns what a linkage name of C++ says.
func Tree(name string, options ...demangle.Option) (demangle.AST, error) {
	name, err := resolve(name)
	if err != nil {
		return nil, err
	}
	tree, err := demangle.ToAST(name, options...)
	if err != nil {
		return nil, err
	}
	return expand(tree, slices.Contains(options, demangle.LLVMStyle))
}

// isRust reports whether a name is Rust's, or looks so: the older form is that of C++
// with a hash at the end, which the library knows best.
func isRust(name string) bool {
	return strings.HasPrefix(name, "_R") || strings.HasPrefix(name, "_ZN") && strings.Contains(name, "17h")
}
