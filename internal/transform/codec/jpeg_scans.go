package codec

import "bytes"

// maxScans is how many scans are read: more than any encoder writes, as in jpeg.c.
const maxScans = 1000

// smoothedCoefficients is how many coefficients of a block, in zigzag order, libjpeg-turbo
// estimates from the blocks around it while no scan has completed them ("block smoothing").
const smoothedCoefficients = 10

// incomplete reports whether the scans of a progressive JPEG leave one of the first coefficients of
// a component incomplete. Decoders then estimate it, and releases of libjpeg-turbo differ in how.
// It reads all scan headers. A file that ends early, or is no JPEG there, is incomplete.
func incomplete(src []byte, h *Header) bool {
	var bits [4][smoothedCoefficients]byte // lowest bit that was coded, plus 1; 0: none was
	frame := src[h.frame:]
	components := frame[6:]
	if len(components) < 3*h.Channels {
		return false // libjpeg reports the error
	}
	segments := jpegSegments{src, h.frame + 6 + 3*h.Channels}
	for range maxScans {
		marker, body, err := segments.next()
		for err == nil && marker != markerSOS && marker != markerEOI {
			marker, body, err = segments.next()
		}
		if err != nil || marker == markerEOI {
			return !complete(bits[:h.Channels])
		}
		if len(body) == 0 || len(body) != 4+2*int(body[0]) {
			return false // libjpeg reports the error
		}
		first, last := int(body[len(body)-3]), int(body[len(body)-2])
		low := body[len(body)-1] & 15
		for _, id := range evenBytes(body[1 : len(body)-3]) {
			for c := range h.Channels {
				if components[3*c] != id {
					continue
				}
				for k := first; k <= last && k < smoothedCoefficients; k++ {
					bits[c][k] = low + 1
				}
			}
		}
		segments.at = jpegScanEnd(src, segments.at)
	}
	return false // jpeg.c refuses it
}

// evenBytes returns the bytes of b at even positions.
func evenBytes(b []byte) (even []byte) {
	for i := 0; i < len(b); i += 2 {
		even = append(even, b[i])
	}
	return even
}

func complete(bits [][smoothedCoefficients]byte) bool {
	for _, component := range bits {
		for _, low := range component {
			if low != 1 {
				return false
			}
		}
	}
	return true
}

// jpegScanEnd returns the offset of the marker that ends the scan whose data begins at offset at,
// or the file's end.
func jpegScanEnd(src []byte, at int) int {
	for {
		n := bytes.IndexByte(src[at:], 0xff)
		if n < 0 || at+n+1 >= len(src) {
			return len(src)
		}
		at += n
		if next := src[at+1]; next != 0 && (next < markerRST0 || next >= markerSOI) {
			return at
		}
		at += 2
	}
}

// suspicious reports whether a JPEG may have damage that libjpeg reports only after the last row:
// its only scan does not end with an end of image. Of an image with several scans libjpeg reads all
// before the first row.
func suspicious(src []byte, h *Header) bool {
	segments := jpegSegments{src, h.frame + 6 + 3*h.Channels}
	for !h.Progressive {
		marker, body, err := segments.next()
		switch {
		case err != nil:
			return true
		case marker != markerSOS:
			continue
		case len(body) == 0 || int(body[0]) != h.Channels:
			return false
		}
		end := jpegScanEnd(src, segments.at)
		return !hasPrefix(src, end, "\xff\xd9")
	}
	return false
}
