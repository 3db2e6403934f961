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
	for range 2 {
		data = bytes.TrimPrefix(data, []byte("Exif\x00\x00"))
	}
	order := tiffOrder(data)
	if order == nil || len(data) < 8 {
		return 1, false
	}
	at := int64(order.Uint32(data[4:]))
	if at+2 > int64(len(data)) {
		return 1, false
	}
	entries := int(order.Uint16(data[at:]))
	total := int64(0)
	for at += 2; entries > 0 && at+12 <= int64(len(data)); entries, at = entries-1, at+12 {
		tag, kind := order.Uint16(data[at:]), int(order.Uint16(data[at+2:]))
		if kind >= len(tiffSizes) || tiffSizes[kind] == 0 {
			continue
		}
		size := tiffSizes[kind] * int64(order.Uint32(data[at+4:]))
		value := data[at+8 : at+12]
		if size > 4 {
			if total += size; total > int64(len(data)) {
				continue
			}
			from := int64(order.Uint32(value))
			if from+size > int64(len(data)) {
				return 1, false
			}
			value = data[from : from+size]
		}
		if tag == tagOrientation && size > 0 {
			return valid(tiffNumber(order, kind, value)), true
		}
	}
	return 1, false
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
