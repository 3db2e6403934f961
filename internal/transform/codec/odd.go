package codec

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"
)

// Smallest contents of which PIL reads all that it looks for in a JPEG's segments and a PNG's
// chunks. It refuses a file with less.
const (
	leastJFIF  = 7  // "JFIF", 0, version
	leastAdobe = 7  // "Adobe", version
	leastICC   = 14 // "ICC_PROFILE", 0, number, count
	leastFrame = 26 // fcTL
)

var leastChunk = map[string]int{
	"gAMA": 4, "cHRM": 32, "sRGB": 1, "pHYs": 9, "acTL": 8, "fdAT": 4, "fcTL": leastFrame,
}

// oddJPEG reports whether PIL may refuse a JPEG for a segment before its first scan that does not
// concern the pixels, or for a marker that is none.
func oddJPEG(marker byte, body []byte) bool {
	switch marker {
	case markerAPP0:
		return hasPrefix(body, 0, "JFIF") && len(body) < leastJFIF
	case markerAPP2:
		return hasPrefix(body, 0, "ICC_PROFILE\x00") && len(body) < leastICC
	case markerAPP13:
		return hasPrefix(body, 0, photoshop) && oddResources(body)
	case markerAPP14:
		return hasPrefix(body, 0, "Adobe") && len(body) < leastAdobe
	}
	return marker > 0 && marker < markerSOF0
}

const photoshop = "Photoshop 3.0\x00"

// oddResources reports whether a segment of Photoshop's ends between a resource's code and its
// name, which PIL expects there. It takes other ends.
func oddResources(body []byte) bool {
	at := len(photoshop)
	for hasPrefix(body, at, "8BIM") && at+6 <= len(body) {
		at += 6
		if at >= len(body) {
			return true
		}
		at += 1 + int(body[at])
		at += at & 1
		if at+4 > len(body) {
			return false
		}
		at += 4 + int(binary.BigEndian.Uint32(body[at:]))
		at += at & 1
	}
	return false
}

// oddPNG collects whether PIL may refuse a PNG for a chunk that does not concern its pixels: one
// that is too short, compressed by another method or larger than PIL takes, or one of an animation
// out of order.
type oddPNG struct {
	odd    bool
	text   int64  // size of the texts
	frames uint32 // chunks of an animation so far
	over   bool   // PIL reads no further: the second frame has begun
}

// Limits of PIL's on a text, or colour profile, that is compressed, and on all texts.
const (
	maxText  = 1 << 20
	maxTexts = 64 << 20
)

// add adds a chunk. It inflates those that are compressed, and may be too large.
func (o *oddPNG) add(kind string, body []byte, h *Header, inPixels bool, z *inflater) {
	if o.over {
		return
	}
	size, packed := int64(len(body)), false
	switch kind {
	case "tEXt":
	case "zTXt":
		_, text, _ := bytes.Cut(body, []byte{0})
		o.odd = o.odd || len(text) > 0 && text[0] != 0
		if len(text) > 0 {
			body, packed = text[1:], true
		}
	case "iTXt":
		_, text, _ := bytes.Cut(body, []byte{0})
		if len(text) >= 2 && text[0] != 0 && text[1] == 0 {
			if parts := bytes.SplitN(text[2:], []byte{0}, 3); len(parts) == 3 {
				body, packed = parts[2], true
			}
		}
	case "iCCP":
		_, profile, ok := bytes.Cut(body, []byte{0})
		if !ok || len(profile) == 0 || profile[0] != 0 {
			o.odd = true
			return
		}
		body, packed = profile[1:], true
		size = 0 // no text
	case "fcTL", "fdAT":
		o.addFrame(kind, body, h, inPixels)
		return
	default:
		o.odd = o.odd || len(body) < leastChunk[kind]
		return
	}
	if packed && int64(len(body))*deflateRatio >= maxText {
		inflated := z.size(body, maxText)
		o.odd = o.odd || inflated >= maxText
		size += inflated
	}
	o.text += size
	o.odd = o.odd || o.text > maxTexts
}

// addFrame adds a chunk of an animation. PIL wants them numbered in order, and the first frame
// within the image.
func (o *oddPNG) addFrame(kind string, body []byte, h *Header, inPixels bool) {
	if kind == "fcTL" && inPixels && h.Animated {
		o.over = true
		return
	}
	if len(body) < leastChunk[kind] || binary.BigEndian.Uint32(body) != o.frames {
		o.odd = true
		return
	}
	o.frames++
	if kind == "fcTL" {
		side := func(at int) int64 { return int64(binary.BigEndian.Uint32(body[at:])) }
		o.odd = o.odd || side(12)+side(4) > int64(h.Width) || side(16)+side(8) > int64(h.Height)
	}
}

// inflater inflates zlib streams, of which it keeps nothing. The zero value is ready to use.
type inflater struct {
	z       io.ReadCloser
	src     bytes.Reader
	discard [4096]byte
}

// size returns how many bytes a zlib stream has inflated, up to most of them: all, or those before
// its damage.
func (i *inflater) size(packed []byte, most int64) (n int64) {
	i.src.Reset(packed)
	var err error
	if i.z == nil {
		i.z, err = zlib.NewReader(&i.src)
	} else {
		err = i.z.(zlib.Resetter).Reset(&i.src, nil)
	}
	for err == nil && n < most {
		var got int
		got, err = i.z.Read(i.discard[:])
		n += int64(got)
	}
	return min(n, most)
}
