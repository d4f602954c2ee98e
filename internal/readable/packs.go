package readable

import (
	"slices"

	"github.com/ianlancetaylor/demangle"
)

// expand returns a tree in which each element of an expansion has one element of each
// pack, and in which packs have no elements that are nothing.
//
// An expansion of something other than packs, which are the parameters of a function for
// instance, ends with dots. The library leaves them out in the style of LLVM.
func expand(tree demangle.AST, isLLVM bool) (demangle.AST, error) {
	left := maxLooked
	for range maxShared {
		packs := packsOf(tree, &left)
		changed := expandOnce(tree, packs, isLLVM)
		if left < 0 {
			return nil, errUncertain
		}
		if changed == nil {
			break
		}
		tree = changed
	}
	return tree, nil
}

// maxLooked bounds how many nodes are looked at for packs.
const maxLooked = 1 << 16

// maxShared bounds how often a tree is copied: a part that it has in several places is
// changed in one of them at a time.
const maxShared = 16

// expandOnce returns what expand does, or nil if there is nothing to be changed.
func expandOnce(tree demangle.AST, packs *packs, isLLVM bool) demangle.AST {
	return tree.Copy(func(a demangle.AST) demangle.AST {
		switch a := a.(type) {
		case *demangle.ExprList:
			return elements(a, packs)
		case *demangle.ArgumentPack:
			return withoutEmpty(a)
		case *demangle.Template:
			if isLLVM {
				return withoutParentheses(a)
			}
		case *demangle.PackExpansion:
			if a.Pack == nil && isLLVM {
				return &demangle.Special2{Val1: a.Base, Middle: "...", Val2: new(demangle.Name)}
			}
		}
		return nil
	}, notTwice())
}

// notTwice returns a function for Copy that has each node copied once: a few bytes can
// stand for a very large tree.
func notTwice() func(demangle.AST) bool {
	seen := map[demangle.AST]bool{}
	return func(a demangle.AST) bool {
		if seen[a] {
			return true
		}
		seen[a] = true
		return false
	}
}

// packs are the packs that the functions in a tree were instantiated with, and the
// templates that have them.
type packs struct {
	of        map[*demangle.ArgumentPack]bool
	templates map[*demangle.Template]bool
	left      *int // how many nodes may still be looked at
}

func packsOf(tree demangle.AST, left *int) *packs {
	p := &packs{map[*demangle.ArgumentPack]bool{}, map[*demangle.Template]bool{}, left}
	p.name(tree)
	seen := notTwice()
	tree.Traverse(func(a demangle.AST) bool {
		if seen(a) {
			return false
		}
		if f, ok := a.(*demangle.Typed); ok {
			p.name(f.Name)
		}
		return true
	})
	return p
}

// name adds the packs of the templates that a function's name consists of.
func (p *packs) name(a demangle.AST) {
	switch a := a.(type) {
	case *demangle.Clone:
		p.name(a.Base)
	case *demangle.Typed:
		p.name(a.Name)
	case *demangle.Qualified:
		p.name(a.Scope)
		p.name(a.Name)
	case *demangle.MethodWithQualifiers:
		p.name(a.Method)
	case *demangle.Template:
		p.name(a.Name)
		for _, arg := range a.Args {
			if pack, ok := arg.(*demangle.ArgumentPack); ok {
				p.of[pack] = true
				p.templates[a] = true
			}
		}
	}
}

// whole returns the pack that a node stands for, nil if it is another kind of node.
func (p *packs) whole(a demangle.AST) *demangle.ArgumentPack {
	if param, ok := a.(*demangle.TemplateParam); ok {
		if param.Template == nil || param.Index >= len(param.Template.Args) {
			return nil
		}
		pack, _ := param.Template.Args[param.Index].(*demangle.ArgumentPack)
		return pack
	}
	if pack, ok := a.(*demangle.ArgumentPack); ok && p.of[pack] {
		return pack
	}
	return nil
}

// elements returns a list in which no element has all of a pack that is as long as the
// list, or nil if the list is so.
func elements(list *demangle.ExprList, p *packs) demangle.AST {
	exprs, changed := slices.Clone(list.Exprs), false
	for i, expr := range list.Exprs {
		own := expr.Copy(func(a demangle.AST) demangle.AST {
			if pack := p.whole(a); pack != nil && len(pack.Args) == len(list.Exprs) {
				return pack.Args[i]
			}
			return nil
		}, p.isApart)
		if own != nil {
			exprs[i], changed = own, true
		}
	}
	if !changed {
		return nil
	}
	return &demangle.ExprList{Exprs: exprs}
}

// isApart reports whether packs in a node are meant as they are, or cannot be looked at.
func (p *packs) isApart(a demangle.AST) bool {
	if *p.left--; *p.left < 0 {
		return true
	}
	switch a := a.(type) {
	case *demangle.Template:
		return p.templates[a]
	case *demangle.ExprList, *demangle.SizeofPack, *demangle.SizeofArgs, *demangle.Typed:
		return true
	}
	return false
}

// withoutParentheses returns a template in whose arguments expansions stand as packs do:
// the library writes parentheses around them in the style of LLVM. It is nil if there are
// none.
func withoutParentheses(t *demangle.Template) demangle.AST {
	args, changed := slices.Clone(t.Args), false
	for i, arg := range args {
		if list, ok := arg.(*demangle.ExprList); ok {
			args[i], changed = &demangle.ArgumentPack{Args: list.Exprs}, true
		}
	}
	if !changed {
		return nil
	}
	return &demangle.Template{Name: t.Name, Args: args}
}

// withoutEmpty returns a pack without the elements that are nothing, or nil if it has
// none.
func withoutEmpty(pack *demangle.ArgumentPack) demangle.AST {
	isEmpty := func(a demangle.AST) bool {
		list, ok := a.(*demangle.ExprList)
		return ok && len(list.Exprs) == 0
	}
	if !slices.ContainsFunc(pack.Args, isEmpty) {
		return nil
	}
	return &demangle.ArgumentPack{Args: slices.DeleteFunc(slices.Clone(pack.Args), isEmpty)}
}
