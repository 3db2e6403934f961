package targets

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Format is how four numbers describe a box.
type Format uint8

// Formats, with torchvision's names.
const (
	XYXY   Format = iota // left, top, right, bottom
	XYWH                 // left, top, width, height
	CXCYWH               // the middle, width, height
)

// Formats lists the names of all formats.
var Formats = []string{"XYXY", "XYWH", "CXCYWH"}

func (f Format) String() string { return Formats[f] }

// Boxes are boxes around objects of an image, in pixels, with a label each.
type Boxes struct {
	Format Format
	list   [][4]float32
	labels []int64
}

// Header is the size in bytes of what precedes encoded boxes.
const Header = 16

// Typical is the size in bytes of typical encoded boxes: of 16 objects.
const Typical = Header + 16*perBox

// perBox is the size in bytes of a box and its label.
const perBox = 16 + 8

// Parse reads boxes of an image of this size: a JSON object with "boxes", a list of four
// numbers each; "labels", a whole number for each; and "format", by default "XYXY". The error names
// the key and the value, in the words of python/hdmlp/_records/boxes.py.
func (b *Boxes) Parse(text []byte, width, height int) error {
	b.list, b.labels = b.list[:0], b.labels[:0]
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // as editors of Windows write it
	var given map[string]json.RawMessage
	if err := json.Unmarshal(text, &given); err != nil {
		if bytes.Contains(text, []byte("NaN")) || bytes.Contains(text, []byte("Infinity")) {
			return errors.New("the boxes have NaN or Infinity, which are no places in an image")
		}
		return fmt.Errorf(`boxes are a JSON object such as {"boxes": [[x1, y1, x2, y2]], `+
			`"labels": [1], "format": "XYXY"}: %w`, err)
	}
	for key := range given {
		if key != "boxes" && key != "labels" && key != "format" {
			return fmt.Errorf(`the boxes have the key %q; allowed: "boxes", "labels", "format"`, key)
		}
	}
	if err := b.parseFormat(given["format"]); err != nil {
		return err
	}
	if err := b.parseBoxes(given["boxes"]); err != nil {
		return err
	}
	// null would be read as 0.
	null := bytes.Contains(given["labels"], []byte("null"))
	if err := json.Unmarshal(given["labels"], &b.labels); err != nil || b.labels == nil || null {
		return wrongLabels(given["labels"])
	}
	if len(b.labels) != len(b.list) {
		return fmt.Errorf("%d boxes and %d labels", len(b.list), len(b.labels))
	}
	for i, box := range b.list {
		if why := b.Format.wrong(box, width, height); why != "" {
			return fmt.Errorf(`"boxes"[%d] = %s (%v) %s`, i, shown(given["boxes"], i), b.Format, why)
		}
	}
	return nil
}

func (b *Boxes) parseBoxes(text json.RawMessage) error {
	var list [][]float64
	null := bytes.Contains(text, []byte("null"))
	if err := json.Unmarshal(text, &list); err != nil || list == nil || null {
		return b.Format.wrongBoxes(text)
	}
	for _, numbers := range list {
		if len(numbers) != 4 {
			return b.Format.wrongBoxes(text)
		}
		var box [4]float32
		for j, x := range numbers {
			box[j] = float32(x)
			if math.IsInf(float64(box[j]), 0) {
				return b.Format.wrongBoxes(text)
			}
		}
		b.list = append(b.list, box)
	}
	return nil
}

// wrongBoxes returns what is wrong with the value of "boxes", which cannot be read.
func (f Format) wrongBoxes(text json.RawMessage) error {
	for i, box := range listed(text) {
		numbers := listed(box)
		why := "does not have four numbers"
		if numbers == nil {
			why = "is no list of four numbers: \"boxes\" has one for each box, also for a single one"
		}
		valid := len(numbers) == 4
		for _, x := range numbers {
			valid = valid && (x[0] == '-' || x[0] >= '0' && x[0] <= '9')
		}
		for _, x := range numbers {
			near, _ := strconv.ParseFloat(string(x), 64)
			if valid && math.IsInf(float64(float32(near)), 0) {
				valid, why = false, "has a number that is not finite in float32"
			}
		}
		if !valid {
			return fmt.Errorf(`"boxes"[%d] = %s (%v) %s`, i, shown(text, i), f, why)
		}
	}
	return errors.New(`"boxes" must be a list of lists of four numbers each`)
}

// wrongLabels returns what is wrong with the value of "labels", which cannot be read.
func wrongLabels(text json.RawMessage) error {
	for i, label := range listed(text) {
		if _, err := strconv.ParseInt(string(label), 10, 64); err != nil {
			return fmt.Errorf(`"labels"[%d] = %s: must be a whole number of at most 64 bits, that of `+
				`the box's class`, i, shown(text, i))
		}
	}
	return errors.New(`"labels" must be a list with a whole number for each box: the number of ` +
		`its class, or 1 if there is one class`)
}

// listed returns the members of a JSON list; nil: it is none.
func listed(text json.RawMessage) (members []json.RawMessage) {
	if json.Unmarshal(text, &members) != nil {
		return nil
	}
	return members
}

// shown returns member i of a JSON list, for a message.
func shown(text json.RawMessage, i int) string {
	member := listed(text)[i]
	made := string(member)
	if numbers := listed(member); numbers != nil {
		made = "[" + string(bytes.Join(asBytes(numbers), []byte(", "))) + "]"
	}
	if len(made) > maxShown {
		made = made[:maxShown] + "..."
	}
	return made
}

// maxShown is how many bytes of a value a message has.
const maxShown = 80

func asBytes(list []json.RawMessage) (made [][]byte) {
	for _, one := range list {
		made = append(made, one)
	}
	return made
}

func (b *Boxes) parseFormat(given json.RawMessage) error {
	b.Format = XYXY
	if given == nil {
		return nil
	}
	name := ""
	if json.Unmarshal(given, &name) == nil {
		if i := slices.Index(Formats, strings.ToUpper(name)); i >= 0 {
			b.Format = Format(i)
			return nil
		}
	}
	return fmt.Errorf(`"format" is %s; allowed: %s`, given, strings.Join(Formats, ", "))
}

// wrong returns what is wrong with a box of an image of this size; "": nothing.
func (f Format) wrong(box [4]float32, width, height int) string {
	b := f.corners(box)
	switch {
	case b[2] < b[0] || b[3] < b[1]:
		return "has a negative width or height"
	case b[2] < 0 || b[3] < 0 || b[0] > float32(width) || b[1] > float32(height):
		return fmt.Sprintf("lies outside of its image of %d x %d pixels", width, height)
	}
	return ""
}

// corners returns a box as XYXY, with torch's roundings.
func (f Format) corners(b [4]float32) [4]float32 {
	switch f {
	case XYWH:
		b[2] += b[0]
		b[3] += b[1]
	case CXCYWH:
		b[0] -= b[2] / 2
		b[1] -= b[3] / 2
		b[2] += b[0]
		b[3] += b[1]
	}
	return b
}

// of returns a box that is XYXY in this format, with torch's roundings.
func (f Format) of(b [4]float32) [4]float32 {
	if f == XYXY {
		return b
	}
	b[2] -= b[0]
	b[3] -= b[1]
	if f == CXCYWH {
		b[0] = float32(b[0]*2+b[2]) / 2
		b[1] = float32(b[1]*2+b[3]) / 2
	}
	return b
}

func (b *Boxes) flip(vertical bool, width, height int) {
	if b == nil {
		return
	}
	i, edge := 0, float32(width)
	if vertical {
		i, edge = 1, float32(height)
	}
	for k := range b.list {
		box := &b.list[k]
		switch b.Format {
		case XYXY:
			box[i], box[i+2] = -(box[i+2] - edge), -(box[i] - edge)
		case XYWH:
			right := box[i] + box[i+2]
			box[i] = -(right - edge)
		default:
			box[i] = -(box[i] - edge)
		}
	}
}

// shift moves the boxes and clamps them to an image of this size.
func (b *Boxes) shift(x, y, width, height int) {
	if b == nil {
		return
	}
	for k := range b.list {
		box := &b.list[k]
		box[0] += float32(x)
		box[1] += float32(y)
		if b.Format == XYXY {
			box[2] += float32(x)
			box[3] += float32(y)
		}
	}
	b.clamp(width, height)
}

func (b *Boxes) clamp(width, height int) {
	for k, box := range b.list {
		c := b.Format.corners(box)
		for i, edge := range [4]float32{
			float32(width), float32(height), float32(width),
			float32(height),
		} {
			c[i] = min(max(c[i], 0), edge)
		}
		b.list[k] = b.Format.of(c)
	}
}

func (b *Boxes) scale(across, down float64) {
	if b == nil {
		return
	}
	for k := range b.list {
		box := &b.list[k]
		box[0] *= float32(across)
		box[1] *= float32(down)
		box[2] *= float32(across)
		box[3] *= float32(down)
	}
}

// Clamp clamps the boxes to the image.
func (s *Set) Clamp() {
	if s != nil && s.Boxes != nil {
		s.Boxes.clamp(s.width, s.height)
	}
}

// Convert converts the boxes to a format.
func (s *Set) Convert(to Format) {
	if s == nil || s.Boxes == nil || s.Boxes.Format == to {
		return
	}
	b := s.Boxes
	for k, box := range b.list {
		if b.Format == XYWH && to == CXCYWH {
			box[0] += box[2] / 2
			box[1] += box[3] / 2
			b.list[k] = box
		} else if b.Format == CXCYWH && to == XYWH {
			box[0] -= box[2] / 2
			box[1] -= box[3] / 2
			b.list[k] = box
		} else {
			b.list[k] = to.of(b.Format.corners(box))
		}
	}
	b.Format = to
}

// Sanitize removes boxes whose sides or area are smaller than these, and those that reach outside
// of the image, with their labels.
func (s *Set) Sanitize(size, area float32) {
	if s == nil || s.Boxes == nil {
		return
	}
	b := s.Boxes
	width, height := float32(s.width), float32(s.height)
	kept := 0
	for k, box := range b.list {
		c := b.Format.corners(box)
		w, h := c[2]-c[0], c[3]-c[1]
		if w >= size && h >= size && float32(w*h) >= area && min(c[0], c[1], c[2], c[3]) >= 0 &&
			max(c[0], c[2]) <= width && max(c[1], c[3]) <= height {
			b.list[kept], b.labels[kept] = box, b.labels[k]
			kept++
		}
	}
	b.list, b.labels = b.list[:kept], b.labels[:kept]
}

// Bytes returns how many bytes Encode writes.
func (b *Boxes) Bytes() int { return Header + len(b.list)*perBox }

// Encode writes the boxes of an image of this size (docs/FORMATS.md): their number, their format,
// the image's height and width, u32 each; the boxes, four float32 each; the labels, int64.
func (b *Boxes) Encode(dst []byte, width, height int) {
	for i, n := range []int{len(b.list), int(b.Format), height, width} {
		binary.LittleEndian.PutUint32(dst[4*i:], uint32(n))
	}
	dst = dst[Header:]
	for _, box := range b.list {
		for i, x := range box {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		}
		dst = dst[16:]
	}
	for _, label := range b.labels {
		binary.LittleEndian.PutUint64(dst, uint64(label))
		dst = dst[8:]
	}
}
