package tar

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// blockSize is the unit of an archive: a header is one block, contents are padded to whole ones.
const blockSize = 512

// Types of members, as in POSIX.1-2001 and GNU tar.
const (
	typeRegular   = '0'
	typeOld       = 0 // regular, before POSIX
	typeHardLink  = '1'
	typeSymlink   = '2'
	typeDirectory = '5'
	typeContig    = '7' // regular
	typePAX       = 'x' // the records of the next header
	typeGlobalPAX = 'g' // the records of all further headers
	typeGNUName   = 'L' // the name of the next member
	typeGNULink   = 'K' // the target of the next member, a link
	typeGNUSparse = 'S'
	typeGNUVolume = 'V' // the name of the volume
)

// member is a file or another entry of an archive.
type member struct {
	name string
	kind byte
	size int64 // bytes of its contents
}

// errNoHeader is the error of a block that is no header.
var errNoHeader = errors.New("this is no header of a tar file: its checksum is wrong")

// parseHeader decodes a block, which is not all zeros.
func parseHeader(b []byte) (member, error) {
	if !checksumOK(b) {
		return member{}, errNoHeader
	}
	size, err := number(b[124:136])
	if err != nil {
		return member{}, fmt.Errorf("its size is invalid: %w", err)
	}
	m := member{name: text(b[:100]), kind: b[156], size: size}
	// GNU tar has other fields in the place of the prefix.
	if b[345] != 0 && string(b[257:263]) == "ustar\x00" {
		m.name = text(b[345:500]) + "/" + m.name
	}
	switch m.kind {
	case typeHardLink, typeSymlink, typeDirectory, '3', '4', '6': // links, devices, FIFOs
		m.size = 0 // whatever the header says
	}
	return m, nil
}

// checksumOK compares the sum of a header's bytes, unsigned or, as of old programs, signed, the
// sum's own field counted as spaces.
func checksumOK(b []byte) bool {
	want, err := number(b[148:156])
	if err != nil {
		return false
	}
	sum := func(b []byte) (unsigned, signed int64) {
		high := uint64(0) // bytes whose first bit is set
		for ; len(b) >= 8; b = b[8:] {
			word := binary.LittleEndian.Uint64(b)
			const even = 0x00ff00ff00ff00ff
			pairs := word&even + word>>8&even
			unsigned += int64(pairs * 0x0001000100010001 >> 48)
			high += uint64(bits.OnesCount64(word & 0x8080808080808080))
		}
		for _, c := range b {
			unsigned += int64(c)
			high += uint64(c >> 7)
		}
		return unsigned, unsigned - int64(high<<8)
	}
	u1, s1 := sum(b[:148])
	u2, s2 := sum(b[156:blockSize])
	const spaces = 8 * ' '
	return want == u1+u2+spaces || want == s1+s2+spaces
}

// text returns what is before the first NUL.
func text(b []byte) string { return string(untilZero(b)) }

func untilZero(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return b
}

// number decodes octal digits or, if the first bit is set, two's complement in base 256.
func number(b []byte) (int64, error) {
	if b[0]&0x80 != 0 {
		if b[0]&0x40 != 0 {
			return 0, errors.New("it is negative")
		}
		n := int64(b[0] & 0x3f)
		for _, c := range b[1:] {
			if n > math.MaxInt64>>8 {
				return 0, errors.New("it is more than 2^63")
			}
			n = n<<8 | int64(c)
		}
		return n, nil
	}
	digits := bytes.Trim(untilZero(b), " ")
	if len(digits) == 0 {
		if len(bytes.Trim(b, " \x00")) > 0 { // programs differ in what they read there
			return 0, errors.New("it begins with a zero byte, and goes on")
		}
		return 0, nil
	}
	n := int64(0)
	for _, c := range digits { // at most 12 of them
		if c < '0' || c > '7' {
			return 0, fmt.Errorf("%q is no octal number", digits)
		}
		n = n<<3 | int64(c-'0')
	}
	return n, nil
}

// paxRecords are the records of an extended header that matter here.
type paxRecords struct {
	path   string
	size   int64 // -1: there is none
	sparse bool  // the member is sparse, in one of GNU tar's ways
}

// parsePAX decodes the contents of an extended header: records "LENGTH KEY=VALUE\n", in which the
// length counts all of the record.
func parsePAX(b []byte) (paxRecords, error) {
	r := paxRecords{size: -1}
	for len(b) > 0 {
		space := bytes.IndexByte(b, ' ')
		if space < 0 {
			return r, errors.New("an extended header has a record without a length")
		}
		n, err := strconv.ParseUint(string(b[:space]), 10, 31)
		if err != nil || int(n) < space+3 || int(n) > len(b) || b[n-1] != '\n' {
			return r, errors.New("an extended header has a record of an invalid length")
		}
		key, value, ok := strings.Cut(string(b[space+1:n-1]), "=")
		if !ok {
			return r, errors.New("an extended header has a record without a value")
		}
		b = b[n:]
		switch {
		case key == "path":
			r.path = value
		case key == "size":
			size, err := strconv.ParseInt(value, 10, 64)
			if err != nil || size < 0 {
				return r, fmt.Errorf("an extended header has the size %q", value)
			}
			r.size = size
		case strings.HasPrefix(key, "GNU.sparse."):
			r.sparse = true
		}
	}
	return r, nil
}
