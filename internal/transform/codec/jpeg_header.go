package codec

import (
	"bytes"
	"encoding/binary"
)

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
	markerDQT   = 0xdb
	markerDRI   = 0xdd
	markerAPP0  = 0xe0
	markerAPP1  = 0xe1
	markerAPP2  = 0xe2
	markerAPP13 = 0xed
	markerAPP14 = 0xee
	markerAPP15 = 0xef
	markerCOM   = 0xfe
	markerTEM   = 0x01
)

// isFrame reports whether a marker begins a frame header.
func isFrame(marker byte) bool {
	return marker >= markerSOF0 && marker <= markerSOF15 &&
		marker != markerDHT && marker != markerJPG && marker != markerDAC
}

// isProgressive reports whether a frame header's marker is that of a progressive JPEG.
func isProgressive(marker byte) bool { return marker&3 == 2 }

// jpegSegments reads the marker segments of a JPEG one by one, from its second byte on.
type jpegSegments struct {
	src []byte
	at  int // after the segment that was read last
}

// next returns the next marker segment, with its content. That of the end of the image, and of a
// marker without a segment, is empty.
func (s *jpegSegments) next() (marker byte, body []byte, err error) {
	src := s.src
	for {
		// Any number of fill bytes may precede a marker, and libjpeg skips bytes that are not
		// markers.
		for s.at < len(src) && src[s.at] != 0xff {
			s.at++
		}
		for s.at < len(src) && src[s.at] == 0xff {
			s.at++
		}
		if s.at >= len(src) {
			return 0, nil, errNoFrame
		}
		marker = src[s.at]
		s.at++
		switch {
		case marker == markerTEM:
			return marker, nil, nil
		case marker == 0, marker >= markerRST0 && marker <= markerSOI:
			continue
		case marker == markerEOI:
			return marker, nil, nil
		}
		break
	}
	if s.at+2 > len(src) {
		return marker, nil, errNoFrame
	}
	size := int(binary.BigEndian.Uint16(src[s.at:]))
	if size < 2 && (marker >= markerAPP0 && marker <= markerAPP15 || marker == markerCOM) {
		s.at += 2 // PIL and libjpeg take it as empty
		return marker, nil, nil
	}
	if size < 2 {
		return marker, nil, fail(ErrCorrupt, "JPEG marker %#x of %d bytes", marker, size)
	}
	if s.at+size > len(src) {
		return marker, nil, errNoFrame
	}
	body = src[s.at+2 : s.at+size]
	s.at += size
	return marker, body, nil
}

var errNoFrame = fail(ErrTruncated, "JPEG ends before its frame header")

// jpegHeader reads the frame header, and the orientation, which may follow it up to the first scan.
func jpegHeader(src []byte) (Header, error) {
	h := Header{Format: JPEG}
	var says carriers
	for segments := (jpegSegments{src, 2}); ; {
		marker, body, err := segments.next()
		h.Odd = h.Odd || err == nil && oddJPEG(marker, body)
		ends := err != nil || marker == markerEOI || marker == markerSOS
		switch {
		case ends && h.frame > 0:
			h.Orientation = says.orientation()
			h.Odd = h.Odd || oddEXIF(says.exif)
			h.Incomplete = err == nil && h.Progressive && incomplete(src, &h)
			return h, nil
		case err != nil:
			return h, err
		case ends:
			return h, fail(ErrCorrupt, "JPEG without a frame header")
		case marker == markerAPP1:
			first := says.exif == nil
			says.addJPEG(body)
			// Older releases of PIL read the first segment with EXIF alone, newer ones all of them.
			h.Odd = h.Odd || first && oddEXIF(says.exif)
		case isFrame(marker) && h.frame == 0:
			h.frame = segments.at - len(body)
			if err := h.readFrame(marker, body); err != nil {
				return h, err
			}
		}
	}
}

// addJPEG adds the content of an APP1 segment. Several with EXIF are one after the other, and of
// several with XMP the last one counts.
func (c *carriers) addJPEG(body []byte) {
	if exif, ok := bytes.CutPrefix(body, []byte("Exif\x00\x00")); ok {
		if c.exif == nil {
			c.exif = exif[:len(exif):len(exif)]
		} else {
			c.exif = append(c.exif, exif...)
		}
	}
	if xmp, ok := bytes.CutPrefix(body, []byte("http://ns.adobe.com/xap/1.0/\x00")); ok {
		c.xmp = xmp
	}
}

// readFrame reads a frame header: precision, height, width, number of components.
func (h *Header) readFrame(marker byte, body []byte) error {
	if len(body) < 6 {
		return fail(ErrCorrupt, "JPEG frame header of %d bytes", len(body))
	}
	h.Height, h.Width = int(binary.BigEndian.Uint16(body[1:])),
		int(binary.BigEndian.Uint16(body[3:]))
	h.Channels = int(body[5])
	h.Progressive = isProgressive(marker)
	if body[0] != 8 {
		return fail(ErrUnsupported, "JPEG of %d bits per sample", body[0])
	}
	if marker&3 == 3 || marker&7 > 4 && marker != 0xc9 && marker != 0xca {
		return fail(ErrUnsupported, "lossless or hierarchical JPEG (marker %#x)", marker)
	}
	if h.Channels != 1 && h.Channels != 3 && h.Channels != 4 {
		return fail(ErrUnsupported, "JPEG of %d components", h.Channels)
	}
	return nil
}
