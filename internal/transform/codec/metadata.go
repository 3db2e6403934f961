package codec

import (
	"encoding/binary"
	"hash/crc32"
)

// AppendMetadata appends what an image file says beside its pixels, in the form of a file of one
// pixel, which has the file's own segments in their order: PIL's Image.open(f).convert("RGB")
// leaves the same info of both. It appends nothing if that info is empty. Damaged files may get
// anything; Decode returns errors for them.
//
// A PNG's chunks that describe animation are left out. A JPEG that describes several images is
// given up to its first scan as it is, because PIL's info has an offset in the file.
func AppendMetadata(dst, src []byte, f Format) []byte {
	switch f {
	case JPEG:
		return appendJPEGMetadata(dst, src)
	case PNG:
		return appendPNGMetadata(dst, src)
	case WebP:
		return appendWebPMetadata(dst, src)
	}
	return dst
}

func appendJPEGMetadata(dst, src []byte) []byte {
	begin, any := len(dst), false
	dst = append(dst, 0xff, markerSOI)
	for segments := (jpegSegments{src, 2}); ; {
		marker, body, err := segments.next()
		if err != nil || marker == markerEOI {
			return dst[:begin]
		}
		at := len(dst)
		switch {
		case marker == markerAPP2 && hasPrefix(body, 0, "MPF\x00"):
			return appendToScan(dst[:begin], src)
		case marker >= markerAPP0 && marker <= markerAPP15, marker == markerCOM:
			any = true
		case isFrame(marker) && len(body) >= 6:
			any = any || isProgressive(marker)
		case marker != markerSOS:
			continue
		}
		dst = append(dst, 0xff, marker, 0, 0)
		dst = append(dst, body...)
		binary.BigEndian.PutUint16(dst[at+2:], uint16(2+len(body)))
		if isFrame(marker) {
			binary.BigEndian.PutUint32(dst[at+5:], 1<<16|1) // height and width
		}
		if marker == markerSOS {
			if !any {
				return dst[:begin]
			}
			return dst
		}
	}
}

// appendToScan appends a JPEG up to its first scan's header.
func appendToScan(dst, src []byte) []byte {
	for segments := (jpegSegments{src, 2}); ; {
		marker, _, err := segments.next()
		if err != nil || marker == markerEOI {
			return dst
		}
		if marker == markerSOS {
			return append(dst, src[:segments.at]...)
		}
	}
}

// pngPixel is a chunk with the pixel of a PNG of any kind: up to 8 bytes after the filter.
const pngPixel = "\x00\x00\x00\x0bIDATx\xda\x63\x60\x80\x02\x00\x00\x09\x00\x01\x68\xf6\xcf\x4e"

func appendPNGMetadata(dst, src []byte) []byte {
	const interlace = pngFirst - 5
	begin, any := len(dst), src[interlace] != 0
	dst = append(dst, src[:pngFirst]...)
	header := dst[begin+len(pngSignature)+4:][:4+13]
	binary.BigEndian.PutUint64(header[4:], 1<<32|1) // width and height
	binary.BigEndian.PutUint32(dst[begin+pngFirst-4:], crc32.ChecksumIEEE(header))
	inPixels := false // some have come
	for at := pngFirst; at < len(src); {
		kind, _, next := pngChunk(src, at)
		next = min(next, len(src))
		switch string(kind) {
		case "":
			next = len(src)
		case "IDAT":
			if !inPixels {
				dst = append(dst, pngPixel...)
			}
			inPixels = true
		case "acTL", "fcTL", "fdAT":
		case "PLTE":
			dst = append(dst, src[at:next]...)
		case "IEND":
			dst, next = append(dst, src[at:next]...), len(src)
		default:
			any = true
			dst = append(dst, src[at:next]...)
		}
		at = next
	}
	if !any {
		return dst[:begin]
	}
	return dst
}

// webpPixel is a chunk with a lossless WebP of one pixel, which may be transparent.
const webpPixel = "VP8L\x0d\x00\x00\x00/\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"

func appendWebPMetadata(dst, src []byte) []byte {
	begin, inPixels := len(dst), false // whether they have come
	dst = append(dst, src[:webpFirst]...)
	extended := hasPrefix(src, webpFirst, "VP8X")
	for at := webpFirst; ; {
		kind, body, next := webpChunk(src, at)
		if kind == nil {
			break
		}
		chunk := src[at:min(next, len(src))]
		switch string(kind) {
		case "VP8 ", "VP8L":
			if !inPixels {
				dst = append(dst, webpPixel...)
			}
			inPixels = true
		case "VP8X":
			dst = append(dst, chunk...)
			if len(body) >= 10 {
				clear(dst[len(dst)-len(chunk)+8+4:][:6]) // width and height, less 1
			}
		case "ICCP", "EXIF", "XMP ":
			if extended {
				dst = append(dst, chunk...)
			}
		}
		at = next
	}
	binary.LittleEndian.PutUint32(dst[begin+4:], uint32(len(dst)-begin-8))
	return dst
}
