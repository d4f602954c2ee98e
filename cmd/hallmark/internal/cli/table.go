package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"hallmark/internal/plaintext"
)

// table is text in columns. Every row has a cell for each.
type table struct {
	columns  []column
	rows     [][]string
	measured []int // see measure
}

// column says how the cells of a column are written.
type column struct {
	right bool // aligned to the right
	most  int  // characters that a cell is cut to on a terminal; 0 for no limit
	gives bool // cells are cut where a terminal has no room for the last column
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// measure makes the columns as wide as these cells at least. Whoever has more rows than memory
// measures them all, and writes them in parts.
func (t *table) measure(cells ...string) {
	if t.measured == nil {
		t.measured = make([]int, len(t.columns))
	}
	for i, cell := range cells {
		t.measured[i] = max(t.measured[i], utf8.RuneCountInString(plaintext.Line(cell)))
	}
}

// write writes the rows with two spaces between columns. A width other than 0 is
// that of the terminal: the cells of limited columns and of the last one are
// cut, as long as the last keeps a few characters.
func (t *table) write(w io.Writer, width int) {
	for _, row := range t.rows {
		for i := range row {
			row[i] = plaintext.Line(row[i])
			if width > 0 && t.columns[i].most > 0 {
				row[i] = shorten(row[i], t.columns[i].most)
			}
		}
	}
	if width > 0 {
		t.give(width)
	}
	widths := t.widths()
	last := len(widths) - 1
	left := widthOf(widths[:last])
	for _, row := range t.rows {
		if width > 0 {
			row[last] = shorten(row[last], max(width-left, minLastColumn))
		}
		fmt.Fprintln(w, strings.TrimRight(t.line(row, widths), " "))
	}
}

const (
	gap           = "  " // between columns
	minLastColumn = 16   // what is left of the last column on the narrowest terminal
	minGiving     = 10   // what is left of a column that gives
)

// give cuts columns that give, the widest one first, until the last one has room on a terminal.
func (t *table) give(width int) {
	widths := t.widths()
	for widthOf(widths[:len(widths)-1])+minLastColumn > width {
		widest := -1
		for i, c := range t.columns {
			if c.gives && widths[i] > minGiving && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
		for _, row := range t.rows {
			row[widest] = shorten(row[widest], widths[widest])
		}
	}
}

// widthOf returns the width of columns before another one.
func widthOf(widths []int) (n int) {
	for _, w := range widths {
		n += w + len(gap)
	}
	return n
}

func (t *table) line(row []string, widths []int) string {
	var line strings.Builder
	for i, cell := range row {
		if i > 0 {
			line.WriteString(gap)
		}
		pad := strings.Repeat(" ", widths[i]-min(widths[i], utf8.RuneCountInString(cell)))
		if t.columns[i].right {
			line.WriteString(pad + cell)
		} else {
			line.WriteString(cell + pad)
		}
	}
	return line.String()
}

func (t *table) widths() []int {
	widths := make([]int, len(t.columns))
	copy(widths, t.measured)
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// shorten cuts s to n characters by leaving out its middle: of a path or a
// qualified name both ends tell something.
func shorten(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	head := (n - 1) / 3
	tail := n - 1 - head
	return string(runes[:head]) + "…" + string(runes[len(runes)-tail:])
}

// terminalWidth returns the width of the terminal that w writes to, and 0 where
// w writes to something else, in which lines may have any length.
func terminalWidth(w io.Writer) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return cmp.Or(width, unknownWidth)
}

// narrowWidth is that of terminals which have no room for what the widths of others show: most
// open with 80 columns.
const narrowWidth = 100

// unknownWidth is that of a terminal that does not know it, as serial lines and those of
// programs mostly do not.
const unknownWidth = 80
