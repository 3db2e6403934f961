package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strings"
)

// carriers are the parts of a file that may say how its image is to be turned. What counts among
// them is what Pillow's Image.getexif reads: EXIF, which a PNG may have as text instead (profile),
// and XMP if EXIF has no orientation.
type carriers struct {
	exif    []byte // TIFF, maybe after "Exif\0\0"; nil: none
	profile []byte // PNG's "Raw profile type exif"; nil: none
	xmp     []byte
}

// orientation returns the orientation, 1 to 8; 1 where there is none.
func (c *carriers) orientation() int {
	exif := c.exif
	if exif == nil && c.profile != nil {
		exif = rawProfile(c.profile)
	}
	if found, ok := exifOrientation(exif); ok {
		return found
	}
	return xmpOrientation(c.xmp)
}

// valid returns an orientation, or 1 for a value that means none.
func valid(orientation float64) int {
	if n := int(orientation); float64(n) == orientation && 1 <= n && n <= 8 {
		return n
	}
	return 1
}

// rawProfile returns the EXIF data of a text of ImageMagick's: three lines, and then hexadecimal
// digits in lines. It returns nil if it is not such a text.
func rawProfile(text []byte) []byte {
	lines := bytes.SplitN(text, []byte("\n"), 4)
	if len(lines) < 4 {
		return nil
	}
	digits := strings.Join(strings.Fields(string(lines[3])), "")
	exif, err := hex.DecodeString(digits)
	if err != nil {
		return nil
	}
	return exif
}

// xmpOrientation returns the orientation that XMP, a text, states first.
func xmpOrientation(xmp []byte) int {
	for {
		_, after, found := bytes.Cut(xmp, []byte("tiff:Orientation"))
		if !found {
			return 1
		}
		xmp = after
		value, ok := bytes.CutPrefix(after, []byte(`="`))
		if !ok {
			value, ok = bytes.CutPrefix(after, []byte(">"))
		}
		if ok && len(value) > 0 && value[0] >= '0' && value[0] <= '9' {
			return valid(float64(value[0] - '0'))
		}
	}
}

// tagOrientation is the number of EXIF's tag.
const tagOrientation = 0x0112

// tiffSizes are the sizes in bytes of the types of values; 0: Pillow has no such type.
var tiffSizes = [...]int64{0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8}

// exifOrientation returns the orientation from EXIF data: that of the first directory. ok is false
// if it has none. As in Pillow, reading ends where the values of a tag lie outside of the data.
func exifOrientation(data []byte) (orientation int, ok bool) {
	total := int64(0)
	for tags := newTIFFTags(withoutEXIFMark(data)); ; {
		tag, ok := tags.next()
		if !ok {
			return 1, false
		}
		if tag.size > 4 {
			if total += tag.size; total > int64(len(tags.data)) {
				continue
			}
			if tag.values == nil {
				return 1, false
			}
		}
		if tag.number == tagOrientation && tag.size > 0 {
			return valid(tiffNumber(tags.order, tag.kind, tag.values)), true
		}
	}
}

// withoutEXIFMark returns EXIF data without the mark before it, which may be there twice.
func withoutEXIFMark(data []byte) []byte {
	for range 2 {
		data = bytes.TrimPrefix(data, []byte("Exif\x00\x00"))
	}
	return data
}

// tiffHeader is the size of TIFF's header: byte order, magic number, offset of the first directory.
const tiffHeader = 8

// tiffTags reads the tags of TIFF data's first directory one by one.
type tiffTags struct {
	data  []byte
	order binary.ByteOrder
	at    int64 // of the next tag
	left  int   // tags, as the directory counts them
}

// tiffTag is a tag of a type that Pillow has.
type tiffTag struct {
	number uint16
	kind   int
	size   int64  // of its values, in bytes
	values []byte // nil: they lie outside of the data
}

// newTIFFTags returns the tags of data: none if it is not TIFF.
func newTIFFTags(data []byte) tiffTags {
	t := tiffTags{data: data, order: tiffOrder(data)}
	if t.order == nil || len(data) < tiffHeader {
		return t
	}
	t.at = int64(t.order.Uint32(data[4:])) + 2
	if t.at <= int64(len(data)) {
		t.left = int(t.order.Uint16(data[t.at-2:]))
	}
	return t
}

// next returns the next tag; ok is false if there is none.
func (t *tiffTags) next() (tag tiffTag, ok bool) {
	for ; t.left > 0 && t.at+12 <= int64(len(t.data)); t.left, t.at = t.left-1, t.at+12 {
		entry := t.data[t.at : t.at+12]
		tag.number, tag.kind = t.order.Uint16(entry), int(t.order.Uint16(entry[2:]))
		if tag.kind >= len(tiffSizes) || tiffSizes[tag.kind] == 0 {
			continue
		}
		tag.size = tiffSizes[tag.kind] * int64(t.order.Uint32(entry[4:]))
		if tag.size <= 4 {
			tag.values = entry[8 : 8+tag.size]
		} else if from := int64(t.order.Uint32(entry[8:])); from+tag.size <= int64(len(t.data)) {
			tag.values = t.data[from : from+tag.size]
		}
		t.left--
		t.at += 12
		return tag, true
	}
	return tiffTag{}, false
}

// tiffOrder returns the byte order of TIFF data; nil: it is none. Pillow accepts a magic number in
// the other order.
func tiffOrder(data []byte) binary.ByteOrder {
	switch {
	case hasPrefix(data, 0, "II*\x00"), hasPrefix(data, 0, "II\x00*"):
		return binary.LittleEndian
	case hasPrefix(data, 0, "MM\x00*"), hasPrefix(data, 0, "MM*\x00"):
		return binary.BigEndian
	}
	return nil
}

// tiffNumber returns the first value of a tag; 0 if it is no number.
func tiffNumber(order binary.ByteOrder, kind int, value []byte) float64 {
	switch kind {
	case 3:
		return float64(order.Uint16(value))
	case 4, 13:
		return float64(order.Uint32(value))
	case 5:
		return float64(order.Uint32(value)) / float64(order.Uint32(value[4:]))
	case 6:
		return float64(int8(value[0]))
	case 8:
		return float64(int16(order.Uint16(value)))
	case 9:
		return float64(int32(order.Uint32(value)))
	case 10:
		return float64(int32(order.Uint32(value))) / float64(int32(order.Uint32(value[4:])))
	case 11:
		return float64(math.Float32frombits(order.Uint32(value)))
	case 12:
		return math.Float64frombits(order.Uint64(value))
	case 16:
		return float64(order.Uint64(value))
	}
	return 0 // bytes or text
}
