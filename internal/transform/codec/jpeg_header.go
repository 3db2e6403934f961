package codec

import "encoding/binary"

// Markers of JPEG (ITU-T T.81, table B.1).
const (
	markerSOF0  = 0xc0
	markerDHT   = 0xc4
	markerJPG   = 0xc8
	markerDAC   = 0xcc
	markerSOF15 = 0xcf
	markerRST0  = 0xd0
	markerSOI   = 0xd8
	markerEOI   = 0xd9
	markerSOS   = 0xda
	markerAPP1  = 0xe1
	markerTEM   = 0x01
)

// jpegHeader reads the frame header, and the EXIF orientation before it.
func jpegHeader(src []byte) (Header, error) {
	h := Header{Format: JPEG, Orientation: 1}
	for at := 2; ; {
		// Any number of fill bytes may precede a marker, and libjpeg skips bytes that are not
		// markers.
		for at < len(src) && src[at] != 0xff {
			at++
		}
		for at < len(src) && src[at] == 0xff {
			at++
		}
		if at >= len(src) {
			return h, fail(ErrTruncated, "JPEG ends before its frame header")
		}
		marker := src[at]
		at++
		switch {
		case marker == 0, marker == markerTEM, marker >= markerRST0 && marker <= markerSOI:
			continue
		case marker == markerEOI, marker == markerSOS:
			return h, fail(ErrCorrupt, "JPEG without a frame header")
		}
		if at+2 > len(src) {
			return h, fail(ErrTruncated, "JPEG ends before its frame header")
		}
		size := int(binary.BigEndian.Uint16(src[at:]))
		if size < 2 {
			return h, fail(ErrCorrupt, "JPEG marker %#x of %d bytes", marker, size)
		}
		if at+size > len(src) {
			return h, fail(ErrTruncated, "JPEG ends before its frame header")
		}
		body := src[at+2 : at+size]
		at += size
		switch {
		case marker == markerAPP1 && h.Orientation == 1 && hasPrefix(body, 0, "Exif\x00\x00"):
			h.Orientation = exifOrientation(body[6:])
		case marker >= markerSOF0 && marker <= markerSOF15 &&
			marker != markerDHT && marker != markerJPG && marker != markerDAC:
			h.frame = at - len(body)
			return jpegFrame(h, marker, body)
		}
	}
}

// jpegFrame reads a frame header: precision, height, width, number of components.
func jpegFrame(h Header, marker byte, body []byte) (Header, error) {
	if len(body) < 6 {
		return h, fail(ErrCorrupt, "JPEG frame header of %d bytes", len(body))
	}
	h.Height, h.Width = int(binary.BigEndian.Uint16(body[1:])),
		int(binary.BigEndian.Uint16(body[3:]))
	h.Channels = int(body[5])
	h.Progressive = marker&3 == 2
	if body[0] != 8 {
		return h, fail(ErrUnsupported, "JPEG of %d bits per sample", body[0])
	}
	if marker&3 == 3 || marker&7 > 4 && marker != 0xc9 && marker != 0xca {
		return h, fail(ErrUnsupported, "lossless or hierarchical JPEG (marker %#x)", marker)
	}
	if h.Channels != 1 && h.Channels != 3 && h.Channels != 4 {
		return h, fail(ErrUnsupported, "JPEG of %d components", h.Channels)
	}
	return h, nil
}
