package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"hallmark/profile/query"
)

// Bounds of the answers in a file of its own.
const (
	fileWidth     = 4000 // pixels that the trees are cut for
	fileFunctions = 300  // functions with details, fewer of a large profile: each takes a look at all stacks
	fewFunctions  = 20
	fileLooks     = 30_000_000 // nodes that are looked at for details
	fileLabels    = 100        // labels, of which each answer takes a look at all samples' labels
	fileValues    = 1000       // values of a label that is in the file
	fileRows      = 2000       // rows of a table

	// As time.js asks.
	fileColumns = 120
	minCell     = 30e6 // nanoseconds
)

// WriteFile writes the pages about p as one HTML file, which has all in it and loads nothing. It
// has the answers to what can be asked without a filter. Its policy allows its own script and
// styles alone.
func WriteFile(w io.Writer, p *Profile) error {
	answers, err := fileAnswers(p)
	if err != nil {
		return err
	}
	data, err := marshal(answers)
	if err != nil {
		return err
	}
	page, style, script, err := bundlePage("app/index.html")
	if err != nil {
		return err
	}
	page, err = filePage(p, page, data, script, style)
	if err != nil {
		return err
	}
	_, err = w.Write(page)
	return err
}

// filePage puts what the page loads into it.
func filePage(p *Profile, page, data, script, style []byte) ([]byte, error) {
	head, rest, ok := strings.Cut(string(page), `<link rel="stylesheet"`)
	_, body, ok2 := strings.Cut(rest, "</head>")
	if !ok || !ok2 {
		return nil, fmt.Errorf("the page has no styles")
	}
	title := plain(p.Title)
	if title == "" {
		title = "Hallmark"
	}
	head = strings.Replace(head, "<title>Hallmark</title>", "<title>"+html.EscapeString(title)+"</title>", 1)
	policy := fmt.Sprintf("default-src 'none'; script-src %s; style-src %s; img-src data:; base-uri 'none'; form-action 'none'; "+
		"require-trusted-types-for 'script'; trusted-types 'none'", hashOf(script), hashOf(style))
	var out bytes.Buffer
	head = strings.Replace(head, `<meta charset="utf-8">`, `<meta charset="utf-8">`+"\n"+`<meta http-equiv="Content-Security-Policy" content="`+policy+`">`, 1)
	out.WriteString(head)
	fmt.Fprintf(&out, "<style>%s</style>\n</head>", style)
	end := strings.LastIndex(body, "</body>")
	if end < 0 {
		return nil, fmt.Errorf("the page has no end")
	}
	out.WriteString(body[:end])
	fmt.Fprintf(&out, "<script type=\"application/json\" id=\"answers\">%s</script>\n<script type=\"module\">%s</script>\n", data, script)
	out.WriteString(body[end:])
	return out.Bytes(), nil
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// fileSource has one profile.
type fileSource struct{ profile *Profile }

func (f fileSource) Open(context.Context, string, string) (*Profile, error) { return f.profile, nil }

// fileAnswers returns answers by their questions, as the scripts ask them.
func fileAnswers(p *Profile) (map[string]any, error) {
	own := *p
	own.Download, own.Code, own.Texts = nil, nil, nil
	f := filer{handler: Handler(fileSource{&own}, NewTurns()), answers: map[string]any{}}
	f.add("profile", "", "")
	f.add("coverage", "", "")
	info, ok := f.answers["profile"].(json.RawMessage)
	if f.err != nil || !ok {
		return nil, f.err
	}
	var known struct {
		Times    bool
		Duration int64
		Labels   []labelKey
	}
	if err := json.Unmarshal(info, &known); err != nil {
		return nil, err
	}
	labels, err := fileLabelsOf(p, known.Labels)
	if err != nil {
		return nil, err
	}
	if f.answers["profile"], err = withLabels(info, labels, len(known.Labels)-len(labels)); err != nil {
		return nil, err
	}
	scales := []string{""}
	if p.Set.HasBase() {
		scales = append(scales, "scale=total")
	}
	more := "&limit=" + strconv.Itoa(fileRows)
	for _, scale := range scales {
		wide := "&width=" + strconv.Itoa(fileWidth) + "&fold=1"
		f.addTree("tree", scale, wide)
		if slices.ContainsFunc(labels, func(l labelKey) bool { return l.Key == "process" && l.Values > 1 }) {
			f.addTree("tree", join("split=process", scale), wide)
		}
		f.addTree("tree", join("invert=1", scale), wide)
		f.add("binaries", scale, more)
		for _, sort := range []string{"flat", "cum", "name", "change"} {
			if sort != "change" || p.Set.HasBase() {
				f.add("functions", join(scale, "sort="+sort), more)
			}
		}
		for _, l := range labels {
			f.add("labels", join(scale, url.Values{"key": {l.Key}}.Encode()), more)
		}
	}
	if known.Times {
		rows := min(12, known.Duration/fileColumns/minCell) // as time.js has it
		if rows < 4 {
			rows = 1
		}
		for _, by := range []string{"process", "thread", "container"} {
			f.add("time", fmt.Sprintf("columns=%d&rows=%d&by=%s", fileColumns, rows, by), "")
		}
	}
	f.addFunctions(p.Set.Profile().Stacks().Nodes())
	return f.answers, f.err
}

// fileLabelsOf returns the labels that are in the file, by name: of those with few values the ones that most samples have.
func fileLabelsOf(p *Profile, all []labelKey) ([]labelKey, error) {
	kept := keep(all, func(l labelKey) bool { return l.Values <= fileValues })
	if len(kept) <= fileLabels {
		return kept, nil
	}
	s, err := p.Set.Select(query.Filter{SampleType: p.SampleType})
	if err != nil {
		return nil, err
	}
	samples := s.LabelSamples()
	slices.SortStableFunc(kept, func(a, b labelKey) int { return cmp.Compare(samples[b.Key], samples[a.Key]) })
	kept = kept[:fileLabels]
	slices.SortFunc(kept, func(a, b labelKey) int { return cmp.Compare(a.Key, b.Key) })
	return kept, nil
}

// withLabels returns what is known of a profile with these labels, and with how many others it has.
func withLabels(info json.RawMessage, labels []labelKey, others int) (json.RawMessage, error) {
	var known map[string]any
	numbers := json.NewDecoder(bytes.NewReader(info))
	numbers.UseNumber()
	if err := numbers.Decode(&known); err != nil {
		return nil, err
	}
	known["labels"], known["moreLabels"] = append([]labelKey{}, labels...), others // a list, also of none
	return marshal(known)
}

func join(parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, "&")
}

// filer asks the handler. It remembers its first error.
type filer struct {
	handler http.Handler
	answers map[string]any
	err     error
}

// add keeps the answer to a question, to which the file's has more.
func (f *filer) add(name, query, more string) {
	if b := f.ask(name, query, more); b != nil {
		f.answers[keyOf(name, query)] = json.RawMessage(b)
	}
}

func (f *filer) addTree(name, query, more string) {
	if b := f.ask(name, query, more); b != nil {
		f.answers[keyOf(name, query)] = b // base64 in JSON
	}
}

func keyOf(name, query string) string {
	if query == "" {
		return name
	}
	return name + "?" + query
}

func (f *filer) ask(name, query, more string) []byte {
	if f.err != nil {
		return nil
	}
	r, err := http.NewRequest(http.MethodGet, "/api/"+name+"?"+strings.TrimPrefix(query+more, "&"), nil)
	if err != nil {
		f.err = err
		return nil
	}
	w := &kept{header: http.Header{}}
	f.handler.ServeHTTP(w, r)
	if w.status != 0 && w.status != http.StatusOK {
		f.err = fmt.Errorf("%s: %s", name, strings.TrimSpace(w.body.String()))
		return nil
	}
	return w.body.Bytes()
}

// kept is an answer that is kept.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *kept) Header() http.Header         { return k.header }
func (k *kept) WriteHeader(status int)      { k.status = status }
func (k *kept) Write(b []byte) (int, error) { return k.body.Write(b) }

// addFunctions adds the details of the functions that cost most.
func (f *filer) addFunctions(nodes int) {
	count := max(fewFunctions, min(fileFunctions, fileLooks/max(1, nodes)))
	for _, sort := range []string{"flat", "cum"} {
		b := f.ask("functions", "sort="+sort, "&limit="+strconv.Itoa(count))
		var table struct {
			Rows []struct {
				Frame int
				Key   string
			}
		}
		if f.err == nil {
			f.err = json.Unmarshal(b, &table)
		}
		for _, row := range table.Rows {
			if f.answers["function?fn="+row.Key] != nil {
				continue
			}
			f.add("function", "fn="+row.Key, "")
			f.answers["function?fn="+strconv.Itoa(row.Frame)] = f.answers["function?fn="+row.Key]
		}
	}
}
