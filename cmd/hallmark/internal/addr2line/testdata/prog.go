// Command prog has calls inlined into each other, type parameters and closures.
package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
)

type pair[K cmp.Ordered, V any] struct {
	key   K
	value V
}

func sorted[K cmp.Ordered, V any](m map[K]V) []pair[K, V] {
	var all []pair[K, V]
	for k, v := range m {
		all = append(all, pair[K, V]{k, v})
	}
	slices.SortFunc(all, func(a, b pair[K, V]) int { return cmp.Compare(a.key, b.key) })
	return all
}

func main() {
	counts := map[string]int{}
	for _, arg := range os.Args {
		counts[arg]++
	}
	for _, p := range sorted(counts) {
		fmt.Println(p.key, p.value)
	}
}
