package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A report is the tables, as they are printed and as JSON.
type report struct {
	Tables  []*table
	printed int
}

// A table has cells that are printed as they are.
type table struct {
	Title   string
	Columns []string
	Rows    [][]string
}

func (r *report) table(title string, columns ...string) *table {
	t := &table{Title: title, Columns: columns}
	r.Tables = append(r.Tables, t)
	return t
}

func (t *table) row(cells ...any) {
	var row []string
	for _, c := range cells {
		row = append(row, fmt.Sprint(c))
	}
	t.Rows = append(t.Rows, row)
}

// print prints the tables that were not printed yet.
func (r *report) print() {
	for _, t := range r.Tables[r.printed:] {
		if len(t.Rows) > 0 {
			fmt.Println(t)
		}
	}
	r.printed = len(r.Tables)
}

// write writes the tables to a file.
func (r *report) write(name string) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(data, '\n'), 0o666)
}

// String returns the table in Markdown.
func (t *table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:\n\n|", t.Title)
	for _, c := range t.Columns {
		fmt.Fprintf(&b, " %s |", c)
	}
	b.WriteString("\n|")
	for i := range t.Columns {
		b.WriteString(t.alignment(i))
	}
	b.WriteString("\n")
	for _, row := range t.Rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}

// alignment puts columns of numbers to the right.
func (t *table) alignment(column int) string {
	for _, row := range t.Rows {
		cell := row[column]
		if _, err := strconv.ParseFloat(strings.TrimSuffix(cell, " %"), 64); cell != "" && cell != "–" && err != nil {
			return "---|"
		}
	}
	return "--:|"
}

func share(part, whole int) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3f %%", 100*float64(part)/float64(whole))
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
