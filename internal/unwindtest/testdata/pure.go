// Go without C: goroutines, maps, the collector, reflection, panics that are caught.
package main

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"regexp"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"time"
)

var expression = regexp.MustCompile(`([a-z]+)([0-9]*)x?(foo|bar)*`)

type node struct {
	Name     string
	Children []*node
	Values   map[string]int
}

func tree(depth int) *node {
	n := &node{Name: strconv.Itoa(depth), Values: map[string]int{"a": depth, "b": 2}}
	for range 3 * min(depth, 1) {
		n.Children = append(n.Children, tree(depth-1))
	}
	return n
}

func thrower(depth int) int {
	defer func() { _ = depth * 2 }()
	if depth == 0 {
		panic("caught")
	}
	return thrower(depth-1) + 1
}

func catcher(depth int) (n int) {
	defer func() {
		if recover() != nil {
			n = depth
		}
	}()
	return thrower(depth)
}

func round(n int) int {
	sum := 0
	b, _ := json.Marshal(tree(4))
	var back node
	_ = json.Unmarshal(b, &back)
	sum += len(back.Children)
	var out bytes.Buffer
	w, _ := flate.NewWriter(&out, 6)
	_, _ = w.Write(b)
	_ = w.Close()
	digest := sha256.Sum256(out.Bytes())
	words := make([]string, 300)
	for i := range words {
		words[i] = fmt.Sprintf("%x", i*7919*(n+1)%100003+int(digest[0]))
	}
	sort.Slice(words, func(i, j int) bool { return words[i] < words[j] })
	sum += len(expression.FindAllString("abc12xfoobar zzz "+words[0], -1))
	x := new(big.Int).Exp(big.NewInt(int64(n+3)), big.NewInt(300), big.NewInt(1_000_000_007))
	return sum + int(x.Int64()%7) + catcher(n%20)
}

func main() {
	ms := 1000
	if len(os.Args) > 1 {
		ms, _ = strconv.Atoi(os.Args[1])
	}
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for n := g; time.Now().Before(end); n++ {
				round(n)
				runtime.Gosched()
			}
		})
	}
	all.Wait()
}
