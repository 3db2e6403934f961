package lmdb

import (
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hdmlp/hdmlp/internal/source"
)

// Fields of Caffe's message Datum.
const (
	datumChannels = 1 + iota
	datumHeight
	datumWidth
	datumData
	datumLabel
	datumFloats
	datumEncoded
)

// datumColumns are the columns of values of a Datum, and their fields.
var (
	datumColumns = []string{"label", "channels", "height", "width", "encoded"}
	datumNumbers = []protowire.Number{
		datumLabel, datumChannels, datumHeight, datumWidth, datumEncoded,
	}
)

// datum is what the index has of a Datum: where its bytes or its floats are, and its numbers.
type datum struct {
	data, floats source.Range // Length is source.Missing where it has none
	numbers      [datumEncoded + 1]int32
}

// values appends the values of datumColumns. A number that is missing is 0, as Caffe has it.
func (d *datum) values(list []string) []string {
	for _, n := range datumNumbers {
		list = append(list, strconv.Itoa(int(d.numbers[n])))
	}
	return list
}

const (
	// headSize is how many bytes a field's number and its length or value take at most.
	headSize = 2 * 10
	// expected ends each message about a value that is no Datum.
	expected = `: the value is no Datum of Caffe; with decoder = "raw" it is read as it is`
)

// parseDatum finds the fields of a Datum that is that range of a file. read returns n of its bytes
// from at on; what is long is not read.
func parseDatum(v source.Range, read func(at, n int64) ([]byte, error)) (datum, error) {
	size := v.Length
	missing := source.Range{Length: source.Missing}
	d := datum{data: missing, floats: missing}
	for at := int64(0); at < size; {
		head, err := read(at, min(headSize, size-at))
		if err != nil {
			return d, err
		}
		field, kind, n := protowire.ConsumeTag(head)
		if n < 0 {
			return d, errors.New("a field has no number" + expected)
		}
		value, m := uint64(0), 0 // of a number, or a length
		switch kind {
		case protowire.VarintType, protowire.BytesType:
			value, m = protowire.ConsumeVarint(head[n:])
		case protowire.Fixed32Type:
			m = 4
		case protowire.Fixed64Type:
			m = 8
		default:
			m = -1
		}
		at += int64(n + m)
		if m < 0 || at > size || kind == protowire.BytesType && value > uint64(size-at) {
			return d, fmt.Errorf("field %d is cut off, or of a kind that no message has"+expected, field)
		}
		if err := d.set(field, kind, value, v.Offset+at); err != nil {
			return d, err
		}
		if kind == protowire.BytesType {
			at += int64(value)
		}
	}
	switch {
	case d.data.Length <= 0 && d.floats.Length > 0:
		d.data = missing // as Caffe has it
	case d.data.Length == source.Missing && d.floats.Length == source.Missing:
		d.data = source.Range{Offset: v.Offset} // it has no bytes
	}
	return d, nil
}

// set notes a field whose bytes begin there in the file.
func (d *datum) set(field protowire.Number, kind protowire.Type, value uint64, at int64) error {
	want := protowire.VarintType
	switch field {
	case datumData:
		want = protowire.BytesType
		d.data = source.Range{Offset: at, Length: int64(value)}
	case datumFloats:
		want = protowire.BytesType
		if kind == protowire.Fixed32Type || d.floats.Length > 0 {
			return errors.New("its float_data is not in one piece, as Caffe writes it: each number " +
				`has a tag; read it with decoder = "raw", or write it with [packed=true]`)
		}
		d.floats = source.Range{Offset: at, Length: int64(value)}
	case datumChannels, datumHeight, datumWidth, datumLabel, datumEncoded:
		d.numbers[field] = int32(value)
	default:
		return nil // of a newer Datum
	}
	if kind != want {
		return fmt.Errorf("field %d has the type %d, not %d"+expected, field, kind, want)
	}
	return nil
}

// window is the part of a data file that was read last.
type window struct {
	read  func(at int64, b []byte) error
	size  int64 // of pages
	value source.Range
	have  []byte
	at    int64 // where have begins in the file
}

// bytes returns n bytes of the value from at on, and reads at least to the end of the page.
func (w *window) bytes(at, n int64) ([]byte, error) {
	from := w.value.Offset + at
	if k := from - w.at; k < 0 || k+n > int64(len(w.have)) {
		buffer := make([]byte, min(w.value.Length-at, max(n, w.size-from%w.size)))
		if err := w.read(from, buffer); err != nil {
			return nil, err
		}
		w.have, w.at = buffer, from
	}
	return w.have[from-w.at:][:n], nil
}

// Pickle returns the protocol of a value that Python's pickle wrote, 2 to 5; 0: it is none. The
// daemon never unpickles: that would run what the file says.
func Pickle(value []byte) (protocol int) {
	if n := len(value); n > 2 && value[0] == 0x80 && value[1] >= 2 && value[1] <= 5 &&
		value[n-1] == '.' {
		return int(value[1])
	}
	return 0
}
