package forms

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/transform/codec"
)

// A Record form is, with all numbers little-endian:
//
//	0   4 bytes  magic
//	4   1 byte   version
//	5   1 byte   0
//	6   2 bytes  number of fields
//	8   4 bytes  digest of what follows
//	12  4 bytes  digest of the sample
//	16  8 bytes  size of the sample
//	24           for each field 8 bytes: its Kind, or missing, and its size times 256
//	             what is kept of each field, one after another
//
// In the sample each field begins at a multiple of recordAlign, with zeros before it.
const (
	magicRecord = "HDMR"
	fixedRecord = 24
	entrySize   = 8
	missing     = 0xff // the sample does not have the field
	recordAlign = 64
	mostFields  = 1<<16 - 1
)

// isRecord reports whether a form, if it is one, is a Record.
func isRecord(form []byte) bool {
	return len(form) >= fixedRecord && string(form[:len(magicRecord)]) == magicRecord
}

// mostBeside is how large the form of a field may be, in parts of the field, where several fields
// may have one: beyond are masks as a rule, whose pixels cost much memory and save little time.
const mostBeside = 16

// fieldSize is Size for a field of a sample. Where several fields may have forms, masks have none.
func (c *Converter) fieldSize(field []byte, several bool) int64 {
	form := c.Size(field)
	if !several || form == 0 || codec.IsJPEG(field) {
		return form
	}
	h, err := c.decoder.Header(field)
	if err != nil || form > mostBeside*int64(len(field)) || codec.Numbers(field, &h) {
		return 0
	}
	return form
}

// several reports whether more than one field is to have a form.
func several(converts []bool) bool {
	first := slices.Index(converts, true)
	return first >= 0 && slices.Contains(converts[first+1:], true)
}

// inRecord reports whether a field of a Record may be of a kind.
func inRecord(k Kind) bool { return k <= Transformed && k != Record }

// RecordSize is Size for a sample of several fields, of which those that converts says have forms.
// fields are parts of the sample; nil: it does not have one.
func (c *Converter) RecordSize(fields [][]byte, converts []bool) int64 {
	size, any := int64(fixedRecord+entrySize*len(fields)), false
	several := several(converts)
	defer func() { c.field = 0 }()
	for f, field := range fields {
		c.field = f
		n := int64(len(field))
		if converts[f] && n > 0 {
			if form := c.fieldSize(field, several); form > 0 {
				n, any = form, true
			}
		}
		size += n
	}
	if !any {
		return 0
	}
	return size
}

// ConvertRecord is Convert for a sample of several fields, of which those that converts says become
// forms. fields are parts of the sample; nil: it does not have one. If none of them has a form, the
// error is of codec.ErrNotPacked. Where converts says several, masks stay as read: PNGs and WebPs
// whose form takes more than 16 times as much, and PNGs with a palette, or in gray with one bit or
// 16, whose numbers are not in the pixels.
func (c *Converter) ConvertRecord(dst, sample []byte, fields [][]byte, converts []bool,
) ([]byte, error) {
	if len(fields) > mostFields {
		return dst, &codec.Error{Kind: codec.ErrNotPacked, Why: "it has too many fields"}
	}
	le := binary.LittleEndian
	begin := len(dst)
	dst = append(dst, magicRecord...)
	dst = append(dst, version, 0)
	dst = le.AppendUint16(dst, uint16(len(fields)))
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint32(dst, digest.Of(sample))
	dst = le.AppendUint64(dst, uint64(len(sample)))
	dst = append(dst, make([]byte, entrySize*len(fields))...)
	converted, several := false, several(converts)
	defer func() { c.field = 0 }()
	for f, field := range fields {
		c.field = f
		at := len(dst)
		kind := Kind(missing)
		switch {
		case field == nil:
		case converts[f] && c.fieldSize(field, several) > 0:
			form, err := c.Convert(dst, field)
			if err == nil {
				info, _ := Read(form[at:])
				dst, converted = form, true
				kind = info.Kind
				break
			}
			fallthrough
		default:
			dst, kind = append(dst[:at], field...), AsRead
		}
		entry := dst[begin+fixedRecord+entrySize*f:]
		le.PutUint64(entry, uint64(len(dst)-at)<<8|uint64(kind))
	}
	if !converted {
		return dst[:begin], &codec.Error{Kind: codec.ErrNotPacked, Why: "no field has a form"}
	}
	le.PutUint32(dst[begin+digestAt:], digest.Of(dst[begin+digestFrom:]))
	return dst, nil
}

// Fields appends the fields of a Record to dst, as parts of it, and the Kind of each to kinds; a
// field that the sample does not have is nil. Errors are of ErrVersion or ErrDamaged.
func Fields(dst [][]byte, kinds []Kind, form []byte) ([][]byte, []Kind, error) {
	if !isRecord(form) {
		return dst, kinds, fmt.Errorf("%w: it holds no fields", ErrDamaged)
	}
	if v := form[len(magicRecord)]; v != version {
		return dst, kinds, fmt.Errorf("%w: %d, and this release reads %d", ErrVersion, v, version)
	}
	le := binary.LittleEndian
	n := int(le.Uint16(form[6:]))
	if form[5] != 0 || len(form) < fixedRecord+entrySize*n {
		return dst, kinds, fmt.Errorf("%w: %d bytes are not as its head says", ErrDamaged, len(form))
	}
	rest := form[fixedRecord+entrySize*n:]
	for f := range n {
		entry := le.Uint64(form[fixedRecord+entrySize*f:])
		size, kind := entry>>8, Kind(entry)
		if size > uint64(len(rest)) || !inRecord(kind) && (kind != missing || size > 0) {
			return dst, kinds, fmt.Errorf("%w: field %d has other bytes than it says", ErrDamaged, f)
		}
		if kind == missing {
			dst, kinds = append(dst, nil), append(kinds, AsRead)
			continue
		}
		dst, kinds = append(dst, rest[:size:size]), append(kinds, kind)
		rest = rest[size:]
	}
	if len(rest) > 0 {
		return dst, kinds, fmt.Errorf("%w: %d bytes are more than its fields", ErrDamaged, len(form))
	}
	return dst, kinds, nil
}

// currentRecord is Current for a Record.
func (c *Converter) currentRecord(form []byte) bool {
	var few [4][]byte
	var all [4]Kind
	fields, kinds, err := Fields(few[:0], all[:0], form)
	if err != nil {
		return true
	}
	defer func() { c.field = 0 }()
	current := true
	for f, field := range fields {
		if c.field = f; kinds[f] == Pixels {
			return true // the sample cannot be had
		}
		current = current && (kinds[f] == AsRead || c.Current(field))
	}
	return current
}

// readRecord describes a Record.
func readRecord(form []byte) (Info, error) {
	var few [4][]byte
	var kinds [4]Kind
	if _, _, err := Fields(few[:0], kinds[:0], form); err != nil {
		return Info{}, err
	}
	le := binary.LittleEndian
	return Info{Record, int64(le.Uint64(form[16:])), le.Uint32(form[12:])}, nil
}

// restoreRecord appends the sample of a Record, whose digest has been checked.
func (c *Converter) restoreRecord(dst, form []byte) ([]byte, error) {
	begin := len(dst)
	var few [4][]byte
	var all [4]Kind
	fields, kinds, err := Fields(few[:0], all[:0], form)
	if err != nil {
		return dst, err
	}
	for f, field := range fields {
		if field == nil {
			continue
		}
		for (len(dst)-begin)%recordAlign != 0 {
			dst = append(dst, 0)
		}
		if kinds[f] == AsRead {
			dst = append(dst, field...)
			continue
		}
		if dst, err = c.Restore(dst, field); err != nil {
			return dst[:begin], fmt.Errorf("field %d: %w", f, err)
		}
	}
	return dst, nil
}
