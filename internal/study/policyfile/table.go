// Package policyfile has policies that are tables: which node holds which sample, in which class,
// and in which order classes are filled. They are for the simulator, beside the policies of package
// policies, so that a policy can be tried without a line of Go (thesis 4.1.4).
//
// A table is CSV in UTF-8. Its first line has the names of the columns, sample, node, class and
// order, in any order; blank lines and lines that begin with # are skipped. A Table is what its
// file has; Policy makes a policy of it, for storage classes with names. Nothing here is changed
// after it was made, and everything is safe for concurrent use.
package policyfile

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
)

// columns are those of a table, in the order in which they are documented.
var columns = []string{"sample", "node", "class", "order"}

// Fault is one wrong value of a table.
type Fault struct {
	Line    int
	Column  string // its name; "": the line as a whole
	Value   string // as it was given
	Wrong   string // what is wrong with it
	Allowed string
}

// Error returns the fault as one line, without the name of the file.
func (f Fault) Error() string {
	text := fmt.Sprintf("line %d", f.Line)
	if f.Column != "" {
		text += ", column " + f.Column
	}
	if f.Value != "" {
		text += fmt.Sprintf(": %q", envfile.Shorten(f.Value))
	}
	text += ": " + f.Wrong
	if f.Allowed != "" {
		text += "; allowed: " + f.Allowed
	}
	return text
}

// Faults are wrong values of one table, at most mostFaults.
type Faults []Fault

// mostFaults is the number of faults after which reading or checking a table ends.
const mostFaults = 20

// Error returns all faults, one per line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Table holds the rows of a file, in its order.
type Table struct {
	rows    []row
	classes []string // the texts of the classes, each once; row.class is an index
}

// row is a copy of a sample.
type row struct {
	order  int64
	sample int32
	line   int32
	node   int32
	class  uint8
}

// most is the largest number of a sample, and of rows.
const most = math.MaxInt32

// Read reads a table. Its error is one of reading, or of type Faults.
func Read(from io.Reader) (*Table, error) {
	text := bufio.NewReaderSize(from, 1<<16)
	if mark, err := text.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = text.Discard(3) // cannot fail: they were there
	}
	in := csv.NewReader(text)
	in.Comment, in.TrimLeadingSpace = '#', true
	in.FieldsPerRecord, in.ReuseRecord = -1, true
	head, line, err := record(in)
	if errors.Is(err, io.EOF) {
		return nil, Faults{{
			Line: 1, Wrong: "there is no line with the names of the columns",
			Allowed: strings.Join(columns, ","),
		}}
	}
	if err != nil {
		return nil, err
	}
	place, err := places(head, line)
	if err != nil {
		return nil, err
	}
	t := &Table{}
	var faults Faults
	for len(faults) < mostFaults {
		fields, line, err := record(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if wrong := (Faults)(nil); errors.As(err, &wrong) {
			faults = append(faults, wrong...)
			break // what follows need not be what was meant
		}
		if err != nil {
			return nil, err
		}
		if len(t.rows) == most {
			return nil, Faults{{Line: line, Wrong: fmt.Sprintf("there are more than %d rows", most)}}
		}
		faults = append(faults, t.add(fields, place, line)...)
	}
	if faults != nil {
		return nil, faults
	}
	return t, nil
}

// record returns the next record that is not blank, and its line.
func record(in *csv.Reader) (fields []string, line int, err error) {
	for {
		fields, err = in.Read()
		if wrong := (*csv.ParseError)(nil); errors.As(err, &wrong) {
			return nil, 0, Faults{{
				Line: wrong.Line, Wrong: fmt.Sprintf("not CSV: %v (byte %d)", wrong.Err, wrong.Column),
			}}
		}
		if err != nil {
			return nil, 0, err
		}
		line, _ = in.FieldPos(0)
		for i, f := range fields {
			if !utf8.ValidString(f) {
				return nil, 0, Faults{{
					Line: line, Value: strings.ToValidUTF8(f, "\ufffd"), Wrong: "not UTF-8",
					Allowed: "text in UTF-8; save the table as CSV UTF-8",
				}}
			}
			fields[i] = strings.TrimSpace(f)
		}
		if len(fields) > 1 || fields[0] != "" {
			return fields, line, nil
		}
	}
}

// places returns where each of the columns is.
func places(head []string, line int) ([]int, error) {
	var faults Faults
	place := make([]int, len(columns))
	for i, name := range columns {
		if place[i] = slices.Index(head, name); place[i] < 0 {
			faults = append(faults, Fault{
				Line: line, Column: name, Wrong: "missing in the line with the names of the columns",
				Allowed: strings.Join(columns, ","),
			})
		}
	}
	for i, name := range head {
		switch {
		case slices.Index(head, name) < i:
			faults = append(faults, Fault{Line: line, Column: name, Wrong: "it is there twice"})
		case !slices.Contains(columns, name):
			faults = append(faults, Fault{
				Line: line, Column: strconv.Quote(envfile.Shorten(name)),
				Wrong:   "unknown" + human.Nearest(name, columns),
				Allowed: strings.Join(columns, ","),
			})
		}
	}
	if faults != nil {
		return nil, faults
	}
	return place, nil
}

// add adds a row, unless something is wrong with it.
func (t *Table) add(fields []string, place []int, line int) (faults Faults) {
	if len(fields) != len(columns) {
		return Faults{{
			Line: line, Wrong: fmt.Sprintf("%d values", len(fields)),
			Allowed: fmt.Sprintf("%d, one for each column", len(columns)),
		}}
	}
	number := func(column int, limit int64) int64 {
		text := fields[place[column]]
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil || v < 0 || v > limit {
			faults = append(faults, Fault{
				Line: line, Column: columns[column], Value: text, Wrong: "not a number that it can have",
				Allowed: fmt.Sprintf("a whole number from 0 to %d", limit),
			})
		}
		return v
	}
	r := row{
		line: int32(min(line, most)), sample: int32(number(0, most)), node: int32(number(1, most)),
		order: number(3, math.MaxInt64),
	}
	class := fields[place[2]]
	at := slices.Index(t.classes, class)
	if at < 0 {
		if at = len(t.classes); at == math.MaxUint8 {
			return append(faults, Fault{
				Line: line, Column: "class", Value: class,
				Wrong: fmt.Sprintf("the table has more than %d classes", at),
			})
		}
		t.classes = append(t.classes, strings.Clone(class))
	}
	r.class = uint8(at)
	if faults == nil {
		t.rows = append(t.rows, r)
	}
	return faults
}
