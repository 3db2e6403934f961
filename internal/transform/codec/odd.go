package codec

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"
	"math"
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
		return hasPrefix(body, 0, "ICC_PROFILE\x00") && len(body) < leastICC ||
			hasPrefix(body, 0, "MPF\x00") && oddImages(body[4:])
	case markerAPP13:
		return hasPrefix(body, 0, photoshop) && oddResources(body)
	case markerAPP14:
		return hasPrefix(body, 0, "Adobe") && len(body) < leastAdobe
	}
	return marker < markerSOF0
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

// Tags of TIFF data that PIL reads when it opens a JPEG.
const (
	tagXResolution = 0x011a
	tagImages      = 0xb001 // of MPF: the number of images
	tagEntries     = 0xb002 // of MPF: 16 bytes for each image
)

// oddEXIF reports whether PIL may refuse a JPEG for its EXIF data, from which it takes the
// resolution. Pillow 9 refuses BigTIFF, and a header that ends too early. All releases refuse a
// resolution that is bytes or text with less than two elements.
func oddEXIF(data []byte) bool {
	data = withoutEXIFMark(data)
	if tiffOrder(data) == nil {
		return hasPrefix(data, 0, "II+\x00") || hasPrefix(data, 0, "MM\x00+")
	}
	if len(data) < tiffHeader {
		return true
	}
	for tags := newTIFFTags(data); ; {
		tag, ok := tags.next()
		if !ok {
			return false
		}
		// Text has a zero after it.
		if tag.number == tagXResolution && tag.size <= 2 && tiffSizes[tag.kind] == 1 {
			return true
		}
	}
}

// oddImages reports whether a JPEG's table of images, TIFF data, has fewer entries than images.
// Pillow 12.0 and older releases refuse it.
func oddImages(data []byte) bool {
	images, entries := 0.0, int64(math.MaxInt64)
	for tags := newTIFFTags(data); ; {
		tag, ok := tags.next()
		switch {
		case !ok:
			return float64(entries) < 16*images
		case tag.number == tagImages && tag.size > 0 && tag.values != nil:
			if n := tiffNumber(tags.order, tag.kind, tag.values); n > images { // not NaN
				images = n
			}
		case tag.number == tagEntries:
			entries = min(entries, tag.size)
		}
	}
}

// oddPNG collects whether PIL may refuse a PNG for a chunk that does not concern its pixels: one
// that is too short, compressed by another method or larger than PIL takes, or one of an animation
// out of order; or whether PIL takes the pixels for those of a smaller first frame.
type oddPNG struct {
	odd    bool
	colour int    // the PNG's colour type
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
	case "tRNS":
		o.odd = o.odd || o.colour <= pngRGB && len(body) < 2*pngSamples[o.colour]
		return
	case "cHRM":
		o.odd = o.odd || len(body) < leastChunk[kind] || len(body)%4 != 0
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

// addFrame adds a chunk of an animation. PIL wants them numbered in order, the first one to be
// fcTL, and frames within the image. It takes IDAT's pixels for those of the frame before them.
func (o *oddPNG) addFrame(kind string, body []byte, h *Header, inPixels bool) {
	if kind == "fcTL" && inPixels && h.Animated {
		o.over = true
		return
	}
	if len(body) < leastChunk[kind] || binary.BigEndian.Uint32(body) != o.frames ||
		kind == "fdAT" && o.frames == 0 {
		o.odd = true
		return
	}
	o.frames++
	if kind == "fcTL" {
		side := func(at int) int64 { return int64(binary.BigEndian.Uint32(body[at:])) }
		right, bottom := side(12)+side(4), side(16)+side(8)
		o.odd = o.odd || right > int64(h.Width) || bottom > int64(h.Height) ||
			!inPixels && (side(4) != int64(h.Width) || side(8) != int64(h.Height))
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
