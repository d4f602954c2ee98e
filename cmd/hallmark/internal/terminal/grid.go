// Package terminal writes what people read: grids, numbers with units, and names that a terminal
// shows and does not execute.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"hallmark/internal/plaintext"
)

// A Grid is text in columns. Every row has a cell for each.
type Grid struct {
	Columns  []Column
	Rows     [][]string
	measured []int // see measure
}

// Column says how the cells of a column are written.
type Column struct {
	Right bool // aligned to the right
	Most  int  // characters that a cell is cut to on a terminal; 0 for no limit
	Gives bool // cells are cut where a terminal has no room for the last column
	Start bool // cells that give keep their start, as identities do, and not both ends
}

// Add adds a row.
func (g *Grid) Add(cells ...string) { g.Rows = append(g.Rows, cells) }

// Measure makes the columns as wide as these cells at least. A caller that has more rows than memory
// measures them all, and writes them in parts.
func (g *Grid) Measure(cells ...string) {
	if g.measured == nil {
		g.measured = make([]int, len(g.Columns))
	}
	for i, cell := range cells {
		g.measured[i] = max(g.measured[i], utf8.RuneCountInString(plaintext.Line(cell)))
	}
}

// Write writes the rows with two spaces between columns. A width other than 0 is
// that of the terminal: the cells of limited columns and of the last one are
// cut, as long as the last keeps a few characters.
func (g *Grid) Write(w io.Writer, width int) {
	for _, row := range g.Rows {
		for i := range row {
			row[i] = plaintext.Line(row[i])
			if width > 0 && g.Columns[i].Most > 0 {
				row[i] = shorten(row[i], g.Columns[i].Most)
			}
		}
	}
	if width > 0 {
		g.give(width)
	}
	widths := g.widths()
	last := len(widths) - 1
	left := widthOf(widths[:last])
	for _, row := range g.Rows {
		if width > 0 {
			row[last] = shorten(row[last], max(width-left, minLastColumn))
		}
		fmt.Fprintln(w, strings.TrimRight(g.line(row, widths), " "))
	}
}

const (
	Gap           = "  " // between columns
	minLastColumn = 16   // what is left of the last column on the narrowest terminal
	minGiving     = 10   // what is left of a column that gives
)

// give cuts columns that give, the widest one first, until the last one has room on a terminal.
func (g *Grid) give(width int) {
	widths := g.widths()
	for widthOf(widths[:len(widths)-1])+minLastColumn > width {
		widest := -1
		for i, c := range g.Columns {
			if c.Gives && widths[i] > minGiving && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
		cut := shorten
		if g.Columns[widest].Start {
			cut = startOf
		}
		for _, row := range g.Rows {
			row[widest] = cut(row[widest], widths[widest])
		}
	}
}

// widthOf returns the width of columns before another one.
func widthOf(widths []int) (n int) {
	for _, w := range widths {
		n += w + len(Gap)
	}
	return n
}

func (g *Grid) line(row []string, widths []int) string {
	var line strings.Builder
	for i, cell := range row {
		if i > 0 {
			line.WriteString(Gap)
		}
		pad := strings.Repeat(" ", widths[i]-min(widths[i], utf8.RuneCountInString(cell)))
		if g.Columns[i].Right {
			line.WriteString(pad + cell)
		} else {
			line.WriteString(cell + pad)
		}
	}
	return line.String()
}

func (g *Grid) widths() []int {
	widths := make([]int, len(g.Columns))
	copy(widths, g.measured)
	for _, row := range g.Rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// shorten cuts s to n characters by leaving out its middle: of a path or a
// qualified name both ends say something.
func shorten(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	head := (n - 1) / 3
	tail := n - 1 - head
	return string(runes[:head]) + "…" + string(runes[len(runes)-tail:])
}

// startOf cuts s to n characters by leaving out its end.
func startOf(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:n-1]) + "…"
}

// Width returns the width of the terminal that w writes to, and 0 where
// w writes to something else, in which lines may have any length. COLUMNS is
// that of a terminal that does not know its own.
func Width(w io.Writer) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	if width == 0 {
		width, _ = strconv.Atoi(os.Getenv("COLUMNS"))
	}
	if width <= 0 {
		return UnknownWidth
	}
	return width
}

// NarrowWidth is that of terminals which have no room for what the widths of others show: most
// open with 80 columns.
const NarrowWidth = 100

// UnknownWidth is that of a terminal of which nobody knows it, as of serial lines and of those
// of programs mostly.
const UnknownWidth = 80
