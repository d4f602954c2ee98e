package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/internal/plaintext"
	"hallmark/internal/proftest"
	"hallmark/profile/compact"
	"hallmark/profile/query"
)

func shown(t testing.TB, p, base *pprof.Profile) *Profile {
	t.Helper()
	return &Profile{Set: query.New(compacted(t, p), compacted(t, base)), Title: "test", BaseTitle: "base"}
}

func compacted(t testing.TB, p *pprof.Profile) *compact.Profile {
	t.Helper()
	if p == nil {
		return nil
	}
	c, err := compact.FromPprof(p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ask(t testing.TB, p *Profile, question string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(fileSource{p}, NewTurns()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, question, nil))
	return w
}

// readTree is what the pages read, written anew.
type readTree struct {
	head         treeHead
	value, self  []float64
	base         []float64
	frame, depth []uint32
}

func treeOf(t testing.TB, p *Profile, question string) readTree {
	t.Helper()
	w := ask(t, p, question)
	b := w.Body.Bytes()
	if w.Code != http.StatusOK || !bytes.HasPrefix(b, []byte(treeMagic)) {
		t.Fatalf("%s: status %d: %.200s", question, w.Code, b)
	}
	size := int(binary.LittleEndian.Uint32(b[4:]))
	var r readTree
	if err := json.Unmarshal(b[8:8+size], &r.head); err != nil {
		t.Fatal(err)
	}
	at := (8 + size + 7) / 8 * 8
	doubles := func() (list []float64) {
		for range r.head.Nodes {
			list = append(list, math.Float64frombits(binary.LittleEndian.Uint64(b[at:])))
			at += 8
		}
		return list
	}
	words := func() (list []uint32) {
		for range r.head.Nodes {
			list = append(list, binary.LittleEndian.Uint32(b[at:]))
			at += 4
		}
		return list
	}
	r.value, r.self = doubles(), doubles()
	if r.head.Diff {
		r.base, _ = doubles(), doubles()
	}
	r.frame, r.depth = words(), words()
	if at != len(b) {
		t.Fatalf("%s: %d bytes, of which %d are read", question, len(b), at)
	}
	return r
}

// paths returns what each path of names counts.
func (r readTree) paths() map[string]float64 {
	all := map[string]float64{}
	var names []string
	for i := range r.frame {
		names = append(names[:r.depth[i]], r.head.Frames[r.frame[i]].Name)
		all[strings.Join(names, ";")] += r.value[i]
	}
	return all
}

// naive adds up the paths of a profile by hand, of the type of samples that comes first.
func naive(p *pprof.Profile) map[string]float64 {
	all := map[string]float64{}
	for _, s := range p.Sample {
		path := "all"
		all[path] += float64(s.Value[0])
		for i := len(s.Location) - 1; i >= 0; i-- {
			l := s.Location[i]
			for j := len(l.Line) - 1; j >= 0; j-- {
				path += ";" + l.Line[j].Function.Name
				all[path] += float64(s.Value[0])
			}
			if len(l.Line) == 0 {
				path += ";?"
				all[path] += float64(s.Value[0])
			}
		}
	}
	return all
}

func TestTree(t *testing.T) {
	p := proftest.Mixed()
	unnamed := regexp.MustCompile(`\[[^;]*\][^;]*`)
	got := map[string]float64{}
	for path, value := range treeOf(t, shown(t, p, nil), "/api/tree?type=samples").paths() {
		got[unnamed.ReplaceAllString(path, "?")] += value
	}
	want := naive(p)
	for path, value := range want {
		if got[path] != value {
			t.Errorf("%s counts %g, want %g", path, got[path], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d paths, want %d: %v", len(got), len(want), got)
	}
}

// TestTreeFits wants children to be within their parents, in trees of all kinds.
func TestTreeFits(t *testing.T) {
	p, base := proftest.CPU(t), proftest.CPU(t)
	both := shown(t, p, base)
	questions := []string{"/api/tree", "/api/tree?invert=1", "/api/callers?fn=3", "/api/callees?fn=0", "/api/tree?scale=total", "/api/tree?width=1"}
	first := treeOf(t, both, "/api/tree")
	for i := 1; i < min(len(first.frame), 5) && first.depth[i] == uint32(i); i++ {
		id := first.head.Frames[first.frame[i]].ID
		questions = append(questions, "/api/tree?root="+string(rune('0'+id%10))) // some are not there
	}
	for _, question := range questions {
		if ask(t, both, question).Code == http.StatusNotFound {
			continue
		}
		r := treeOf(t, both, question)
		inside := make([]float64, len(r.frame))
		var open []int
		for i := range r.frame {
			if int(r.depth[i]) > len(open) {
				t.Fatalf("%s: node %d is %d deep, below %d", question, i, r.depth[i], len(open))
			}
			open = append(open[:r.depth[i]], i)
			inside[i] += r.self[i]
			if d := r.depth[i]; d > 0 {
				inside[open[d-1]] += r.value[i]
			}
		}
		for i := r.head.Chain - 1; i < len(inside); i++ {
			if inside[i] > r.value[i] {
				t.Errorf("%s: node %d counts %g, and has %g in it", question, i, r.value[i], inside[i])
			}
		}
	}
}

func TestSplit(t *testing.T) {
	p := shown(t, proftest.Mixed(), nil)
	paths := treeOf(t, p, "/api/tree?type=samples&split=process").paths()
	for path, want := range map[string]float64{"all": 18, "all;app": 11, "all;old": 3} {
		if paths[path] != want {
			t.Errorf("%s counts %g, want %g", path, paths[path], want)
		}
	}
	zoomed := treeOf(t, p, "/api/tree?type=samples&split=process&root=-2")
	if zoomed.head.Chain != 2 || zoomed.paths()["all;app"] != 11 {
		t.Errorf("zoomed: chain %d, %v", zoomed.head.Chain, zoomed.paths())
	}
}

// TestSplitOfManyValues wants those that cannot be seen to be together, and a tree of what can be seen.
func TestSplitOfManyValues(t *testing.T) {
	var sets []map[string][]string
	for i := range 30 {
		sets = append(sets, map[string][]string{"process": {fmt.Sprintf("p%02d", i)}})
	}
	page := shown(t, labelled(sets...), nil)
	tree := treeOf(t, page, "/api/tree?split=process")
	names, sum := []string{}, 0.0
	for i := range tree.value {
		if tree.depth[i] == 1 {
			names = append(names, tree.head.Frames[tree.frame[i]].Name)
			sum += tree.value[i]
		}
	}
	if len(names) != 11 || names[0] != "p29" || names[9] != "p20" || names[10] != "20 others" || sum != 1<<30-1 {
		t.Errorf("%q are %g", names, sum)
	}
	if paths := treeOf(t, page, "/api/tree?split=process&root=-12").paths(); paths["all;20 others"] != 1<<20-1 {
		t.Errorf("the others: %v", paths)
	}
	if w := ask(t, page, "/api/tree?split=process&root=-13"); w.Code != http.StatusNotFound {
		t.Errorf("a part that is not there: status %d", w.Code)
	}
	both := shown(t, labelled(sets[:2]...), labelled(sets[0], sets[2], sets[2]))
	if paths := treeOf(t, both, "/api/tree?split=process").paths(); len(paths) != 7 || paths["all;p01"] != 2 {
		t.Errorf("with a base: %v", paths)
	}
}

// TestLabelFilters wants the filter of each row to choose the samples of that row, whatever the label's text is.
func TestLabelFilters(t *testing.T) {
	p := labelled(map[string][]string{"k=v": {"1"}}, map[string][]string{"k": {"v=1"}}, map[string][]string{"!k": {"v=1"}},
		map[string][]string{"ctl": {"a\x1bb"}}, map[string][]string{"ctl": {"a\x07b"}}, map[string][]string{"ctl": {"a\ufffdb"}}, map[string][]string{"ctl": {"100% +"}},
		map[string][]string{"tag": {"x", "y"}}, map[string][]string{"tag": {"y", "y"}}, map[string][]string{"tag": {"z"}}, map[string][]string{"tag": {strings.Repeat("L", 1500) + "1"}})
	page := shown(t, p, nil)
	for _, key := range []string{"k=v", "k", "!k", "ctl", "tag"} {
		var table struct {
			Rows []struct {
				Value, Filter string
				Flat          int64
			}
		}
		answer(t, page, "/api/labels?key="+url.QueryEscape(key), &table)
		if len(table.Rows) < 2 {
			t.Errorf("%s: %d rows", key, len(table.Rows))
		}
		for _, r := range table.Rows {
			var chosen, others struct{ Total int64 }
			answer(t, page, "/api/functions?label="+url.QueryEscape(r.Filter), &chosen)
			answer(t, page, "/api/functions?label="+url.QueryEscape("!"+r.Filter), &others)
			if chosen.Total != r.Flat || others.Total != 1<<len(p.Sample)-1-r.Flat {
				t.Errorf("%s is %.20q with %d, its filter %q chooses %d, and not %d", key, r.Value, r.Flat, r.Filter, chosen.Total, others.Total)
			}
		}
		sum := 0.0
		tree := treeOf(t, page, "/api/tree?split="+url.QueryEscape(key))
		for i := range tree.value {
			if tree.depth[i] == 1 {
				sum += tree.value[i]
			}
		}
		if sum != tree.value[0] {
			t.Errorf("split by %s: %g, and all is %g", key, sum, tree.value[0])
		}
	}
	if w := ask(t, page, "/api/functions?label="+url.QueryEscape("k=100%")); w.Code != http.StatusBadRequest {
		t.Errorf("a filter that is not encoded: status %d", w.Code)
	}
}

// TestSelectionsOfOtherFilters asks one handler for filters whose texts are the same one after the other.
func TestSelectionsOfOtherFilters(t *testing.T) {
	p := labelled(map[string][]string{"a": {"b"}}, map[string][]string{"a": {"c"}}, nil)
	for i, name := range []string{"aaa", "bbb", "[.bbb zzz"} {
		f := &pprof.Function{ID: uint64(i + 2), Name: name}
		p.Function = append(p.Function, f)
		l := &pprof.Location{ID: uint64(i + 2), Line: []pprof.Line{{Function: f}}}
		p.Location = append(p.Location, l)
		p.Sample[i].Location = []*pprof.Location{l}
	}
	page := shown(t, p, nil)
	handler := Handler(fileSource{page}, NewTurns())
	questions := []string{"focus=[+(&ignore=(", "focus=[&ignore=(+(", "focus=aaa", "ignore=aaa", "hide=aaa", "focus=<nil>", "label=a=b&label=a=c", "label=a=b&label=!a=c", "label=a=b", ""}
	for range 2 {
		for _, q := range questions {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/functions?"+q, nil))
			if got, want := w.Body.String(), ask(t, page, "/api/functions?"+q).Body.String(); got != want {
				t.Errorf("%s, after the other questions: %s, alone: %s", q, got, want)
			}
		}
	}
}

// TestTypesOfOneName wants each type of samples to be what its name in questions chooses.
func TestTypesOfOneName(t *testing.T) {
	p := labelled(nil)
	p.SampleType = nil
	p.Sample[0].Value = nil
	for i, name := range []string{"cpu", "samples", "samples", "odd\x07", "odd\ufffd", "1"} {
		p.SampleType = append(p.SampleType, &pprof.ValueType{Type: name, Unit: fmt.Sprintf("unit%d", i)})
		p.Sample[0].Value = append(p.Sample[0].Value, int64(1+i))
	}
	page := shown(t, p, nil)
	var info struct {
		Types []struct{ Type, Name, Unit string }
	}
	answer(t, page, "/api/profile", &info)
	for i, shown := range info.Types {
		var chosen struct {
			Unit  string
			Total int64
		}
		answer(t, page, "/api/functions?type="+url.QueryEscape(shown.Name), &chosen)
		if chosen.Total != int64(1+i) || chosen.Unit != shown.Unit {
			t.Errorf("type %d is %q, named %q: %+v", i, shown.Type, shown.Name, chosen)
		}
	}
	if len(info.Types) != 6 || info.Types[0].Name != "cpu" || info.Types[1].Name != "samples" {
		t.Errorf("%+v", info.Types)
	}
}

// TestManyTypesAndNotes wants a page of a profile with very many types of values and comments that takes no more than a
// part of them, in memory that grows as the profile does, and shows the type that is chosen.
func TestManyTypesAndNotes(t *testing.T) {
	made := func(n int) (page *Profile) {
		p := labelled(nil)
		p.SampleType, p.Sample[0].Value = nil, make([]int64, n)
		for i := range n {
			p.SampleType = append(p.SampleType, &pprof.ValueType{Type: fmt.Sprint("t", i), Unit: "count"})
			p.Comments = append(p.Comments, fmt.Sprint("comment ", i))
		}
		return shown(t, p, nil)
	}
	type info struct {
		Types []struct{ Name string }
		Type  int
		Notes []string
	}
	spent := func(page *Profile) (bytes uint64, a info) {
		answer(t, page, "/api/profile", &a) // warm
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ask(t, page, "/api/profile")
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc, a
	}
	const n = 20_000
	few, _ := spent(made(n / 10))
	many, a := spent(made(n))
	if many > 20*few {
		t.Errorf("%d types take %d bytes, and %d take %d", n/10, few, n, many)
	}
	if len(a.Types) != maxTypes+1 || a.Type != maxTypes || a.Types[a.Type].Name != fmt.Sprint("t", n-1) {
		t.Errorf("%d types, number %d is chosen", len(a.Types), a.Type)
	}
	if len(a.Notes) != maxNotes+2 || a.Notes[0] != plaintext.Plural(n-maxTypes-1, "", "more types of values are not listed here") ||
		a.Notes[maxNotes+1] != plaintext.Plural(n-maxNotes, "", "more comments of the profile are not shown here") {
		t.Errorf("%d notes", len(a.Notes))
	}
}

// TestFilterByFunction wants functions of one name to be apart in filters by function.
func TestFilterByFunction(t *testing.T) {
	p := labelled(nil, nil, nil)
	for i := range 2 {
		m := &pprof.Mapping{ID: uint64(i + 1), Start: uint64(i+1) << 20, Limit: uint64(i+2) << 20, File: fmt.Sprintf("/bin/%d", i), BuildID: strings.Repeat("ab", 10+i)}
		l := &pprof.Location{ID: uint64(i + 2), Mapping: m, Address: m.Start, Line: p.Location[0].Line}
		p.Mapping, p.Location = append(p.Mapping, m), append(p.Location, l)
		p.Sample[i+1].Location = []*pprof.Location{l}
	}
	p.Sample[0].Location = p.Location[1:3]
	page := shown(t, p, nil) // 1 has both, 2 and 4 have one of them
	var table struct {
		Rows []struct {
			Key string
			Cum int64
		}
	}
	answer(t, page, "/api/functions", &table)
	if len(table.Rows) != 2 {
		t.Fatalf("%d functions", len(table.Rows))
	}
	for i, r := range table.Rows {
		other := table.Rows[1-i]
		for filter, want := range map[string]int64{
			"with=" + r.Key: r.Cum, "with=" + r.Key + "&with=" + other.Key: 1, "without=" + r.Key: other.Cum,
			"without=" + r.Key + "&without=" + other.Key: 0, "with=" + r.Key + "&without=" + r.Key: 1,
		} {
			var chosen struct{ Total int64 }
			if answer(t, page, "/api/functions?"+filter, &chosen); chosen.Total != want {
				t.Errorf("%s chooses %d, want %d", filter, chosen.Total, want)
			}
		}
	}
	if w := ask(t, page, "/api/functions?with=0123456789abcdef"); w.Code != http.StatusNotFound {
		t.Errorf("a function that is not there: status %d", w.Code)
	}
}

// labelled returns a profile with a sample for each set of labels, of the values 1, 2, 4 …
func labelled(sets ...map[string][]string) *pprof.Profile {
	f := &pprof.Function{ID: 1, Name: "main"}
	l := &pprof.Location{ID: 1, Line: []pprof.Line{{Function: f}}}
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}}, Function: []*pprof.Function{f}, Location: []*pprof.Location{l}}
	for i, labels := range sets {
		p.Sample = append(p.Sample, &pprof.Sample{Location: []*pprof.Location{l}, Value: []int64{1 << i}, Label: labels})
	}
	return p
}

func answer(t testing.TB, p *Profile, question string, to any) {
	t.Helper()
	w := ask(t, p, question)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: status %d: %s", question, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), to); err != nil {
		t.Fatal(err)
	}
}

// TestPolicyFitsThePage wants the page to have nothing that the policy refuses.
func TestPolicyFitsThePage(t *testing.T) {
	body := ask(t, shown(t, proftest.Mixed(), nil), "/").Body.String()
	site := httptest.NewRecorder()
	Site().ServeHTTP(site, httptest.NewRequest(http.MethodGet, "/", nil))
	body += site.Body.String()
	for _, bad := range []string{`(?i)<script[^>]*>[^<]`, `(?i)\son[a-z]+\s*=`, `(?i)<style`, `(?i)\sstyle\s*=`, `(?i)(src|href)="(https?:)?//`} {
		if found := regexp.MustCompile(bad).FindString(body); found != "" {
			t.Errorf("the page has %q", found)
		}
	}
	fs.WalkDir(assets, "app", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(assets, name)
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function(", "https://", "http://"} {
			if bytes.Contains(b, []byte(bad)) {
				t.Errorf("%s has %s", name, bad)
			}
		}
		return err
	})
}

// TestBundle wants all modules, and each of them after what it imports.
func TestBundle(t *testing.T) {
	page, style, b, err := bundlePage("app/index.html")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(page, []byte("app/")); n != 2 || !bytes.Contains(page, []byte(`"app/index.css"`)) || !bytes.Contains(page, []byte(`"app/index.js"`)) {
		t.Errorf("the page loads %d files:\n%s", n, page)
	}
	files, _ := fs.Glob(assets, "app/js/*.js")
	if len(files) < 15 {
		t.Errorf("modules: %q", files)
	}
	for _, name := range files {
		if name == "app/js/site.js" { // of the page of a server
			continue
		}
		if !bytes.Contains(b, []byte("const "+moduleName(path.Base(name))+" = ")) {
			t.Errorf("%s is imported by nobody", name)
		}
	}
	defined := map[string]bool{}
	for _, line := range strings.Split(string(b), "\n") {
		if name, ok := strings.CutPrefix(line, "const module_"); ok {
			defined[strings.Fields(name)[0]] = true
		}
		if m := regexp.MustCompile(`^const \{.*\} = module_(\w+);$`).FindStringSubmatch(line); m != nil && defined[m[1]] && !bytes.Contains(b, []byte("module_"+m[1]+" = (")) {
			t.Errorf("%s", line)
		}
	}
	if !bytes.Contains(style, []byte(".flame canvas")) || !bytes.Contains(style, []byte("td.bar")) {
		t.Errorf("styles: %.100s", style)
	}
}

// TestFile wants a file whose policy allows its script, in which no name ends the data.
func TestFile(t *testing.T) {
	p := proftest.Mixed()
	const evil = `</script><script>evil()</script><!--` + "\u2028"
	p.Function[0].Name, p.Mapping[0].File = evil, evil
	both := shown(t, p, proftest.Mixed())
	both.Title = evil
	var b bytes.Buffer
	if err := WriteFile(&b, both); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if n := strings.Count(text, "</script>"); n != 2 {
		t.Errorf("%d scripts end", n)
	}
	if strings.Contains(text, "<script>evil") || strings.Contains(text, "<!--") || strings.Contains(text, "src=") || strings.Contains(text, "<link rel=\"stylesheet\"") {
		t.Error("a name is markup, or something is loaded")
	}
	policy := regexp.MustCompile(`content="(default-src 'none'[^"]*)"`).FindStringSubmatch(text)
	script := regexp.MustCompile(`(?s)<script type="module">(.*?)</script>`).FindStringSubmatch(text)
	if policy == nil || script == nil {
		t.Fatal("the file has no policy or no script")
	}
	sum := sha256.Sum256([]byte(script[1]))
	if !strings.Contains(policy[1], "script-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
		t.Errorf("the policy %q does not allow the script", policy[1])
	}
	data := regexp.MustCompile(`(?s)id="answers">(.*?)</script>`).FindStringSubmatch(text)
	var answers map[string]json.RawMessage
	if err := json.Unmarshal([]byte(data[1]), &answers); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"profile", "coverage", "tree", "tree?invert=1", "tree?scale=total", "functions?sort=flat", "functions?sort=change", "binaries", "tree?split=process&scale=total", "labels?key=process", "function?fn=0"} {
		if answers[want] == nil {
			t.Errorf("the file has no answer to %s", want)
		}
	}
}

// TestFileOfManyLabels wants the file to have the labels of most samples, and to say how many others there are.
func TestFileOfManyLabels(t *testing.T) {
	sets := []map[string][]string{{"rare": {"x"}}}
	for range 20 {
		sets = append(sets, map[string][]string{"process": {"p"}})
	}
	p := labelled(sets...)
	for i := range 5000 {
		last := p.Sample[len(p.Sample)-1]
		last.Label[fmt.Sprintf("key%04d", i)] = []string{"v"}
	}
	answers, err := fileAnswers(shown(t, p, nil))
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		Labels     []labelKey
		MoreLabels int
	}
	if err := json.Unmarshal(answers["profile"].(json.RawMessage), &info); err != nil {
		t.Fatal(err)
	}
	if len(info.Labels) != fileLabels || info.MoreLabels != 5002-fileLabels {
		t.Errorf("%d labels and %d more", len(info.Labels), info.MoreLabels)
	}
	for _, l := range info.Labels {
		if l.Key == "rare" || answers["labels?key="+l.Key] == nil {
			t.Errorf("the label %s is named: %v", l.Key, answers["labels?key="+l.Key])
		}
	}
	if answers["labels?key=process"] == nil {
		t.Error("the file has no processes")
	}
}

func TestDisassemble(t *testing.T) {
	name := func(v uint64) string { return map[uint64]string{0x2000: "callee"}[v] }
	for _, test := range []struct {
		arch string
		code []byte
		want []string
	}{
		{"amd64", []byte{0x55, 0x48, 0x89, 0xe5, 0xe8, 0xf7, 0x0f, 0x00, 0x00, 0x06, 0xc3}, []string{"push %rbp", "mov %rsp,%rbp", "callq callee", "? 06", "retq"}},
		{"arm64", []byte{0xfd, 0x7b, 0xbf, 0xa9, 0xff, 0x03, 0x00, 0x94, 0xc0, 0x03, 0x5f, 0xd6, 0xff}, []string{"stp x29, x30, [sp,#-16]!", "bl .+0xffc  // 0x2000 callee", "ret", "? ff"}},
		{"mips", []byte{1, 2, 3, 4}, nil},
	} {
		f := &Function{Arch: test.arch, Start: 0x100, Virt: 0x1000, Bytes: test.code}
		f.Name = func(v addr.Virt) string { return name(uint64(v)) }
		var got []string
		for _, in := range disassemble(f) {
			got = append(got, in.text)
		}
		if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
			t.Errorf("%s: %q, want %q", test.arch, got, test.want)
		}
	}
}

// FuzzDisassemble wants each byte to be in one instruction.
func FuzzDisassemble(f *testing.F) {
	f.Add(true, []byte{0x55, 0x48, 0x89, 0xe5})
	f.Add(false, []byte{0xfd, 0x7b, 0xbf, 0xa9})
	f.Fuzz(func(t *testing.T, amd64 bool, code []byte) {
		fn := &Function{Arch: "arm64", Start: 7, Virt: 1 << 40, Bytes: code}
		if amd64 {
			fn.Arch = "amd64"
		}
		at := 0
		for _, in := range disassemble(fn) {
			if int(in.offset) != 7+at || in.size < 1 {
				t.Fatalf("an instruction of %d bytes at %d, want %d", in.size, in.offset, 7+at)
			}
			at += in.size
		}
		if at != len(code) && at < maxInstructions {
			t.Errorf("%d bytes of %d", at, len(code))
		}
	})
}

// FuzzQuestion asks anything: nothing is a defect of the server.
func FuzzQuestion(f *testing.F) {
	for _, q := range []string{"tree?root=1.2", "tree?split=process&root=-2.1", "functions?sort=cum&q=a", "time?columns=3&rows=2&by=pid", "function?fn=3", "labels?key=stack", "code?fn=1", "lines?fn=1", "search?q=.*", "coverage?label=!process=app&focus=a"} {
		f.Add(q)
	}
	handler := Handler(fileSource{shown(f, proftest.Mixed(), nil)}, NewTurns())
	f.Fuzz(func(t *testing.T, q string) {
		r, err := http.NewRequest(http.MethodGet, "http://x/api/"+q, nil)
		if err != nil {
			t.Skip()
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%s: status %d: %s", q, w.Code, w.Body)
		}
	})
}

// slowClient reads nothing of an answer until it is let go.
type slowClient struct {
	*httptest.ResponseRecorder
	asked, goOn chan struct{}
	once        sync.Once
}

func (c *slowClient) Write(b []byte) (int, error) {
	c.once.Do(func() { close(c.asked) })
	<-c.goOn
	return c.ResponseRecorder.Write(b)
}

// TestSlowClients has more clients that read nothing than there are turns: others get their answers.
func TestSlowClients(t *testing.T) {
	page := shown(t, proftest.Mixed(), nil)
	page.Download = func(w io.Writer) error { _, err := w.Write([]byte("profile")); return err }
	handler := Handler(fileSource{page}, NewTurns())
	goOn := make(chan struct{})
	var all sync.WaitGroup
	for i := range 2*runtime.GOMAXPROCS(0) + 6 {
		question := "/api/tree"
		if i < 6 {
			question = "/api/download"
		}
		c := &slowClient{ResponseRecorder: httptest.NewRecorder(), asked: make(chan struct{}), goOn: goOn}
		all.Go(func() { handler.ServeHTTP(c, httptest.NewRequest(http.MethodGet, question, nil)) })
		<-c.asked
	}
	for _, question := range []string{"/api/tree", "/api/functions", "/api/download"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, question, nil))
		if w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%s: status %d, %d bytes", question, w.Code, w.Body.Len())
		}
	}
	close(goOn)
	all.Wait()
}

// TestLeftAlone has a client that leaves while an expression is looked for: what was begun is not kept as an answer.
func TestLeftAlone(t *testing.T) {
	handler := Handler(fileSource{shown(t, proftest.Mixed(), nil)}, NewTurns())
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, question := range []string{"/api/search?q=main", "/api/functions?focus=main"} {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, http.MethodGet, question, nil))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, question, nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "[") {
			t.Errorf("%s: status %d, %s", question, w.Code, w.Body)
		}
	}
}

// TestSplitOfNothing wants a selection without samples to be an empty tree.
func TestSplitOfNothing(t *testing.T) {
	p := shown(t, proftest.Mixed(), nil)
	if tree := treeOf(t, p, "/api/tree?type=samples&split=process&focus=nothing%20has%20this"); len(tree.value) != 1 || tree.value[0] != 0 {
		t.Errorf("%v", tree.paths())
	}
}
