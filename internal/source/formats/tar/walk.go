package tar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

const (
	// window is how much is read at a time: a header, and with it what is small and follows it,
	// such as a label and the header after it. With members that are far apart it is all that is
	// read of each. It is a page, the least that a disk or a network file system reads, and reads of
	// files end where a page does: what begins in one and ends in the next takes two.
	window = 4096
	// maxExtended bounds the contents of an extended header or a long name.
	maxExtended = 1 << 20
)

// Error is the error of an archive: where in it, and why.
type Error struct {
	Path   string // of the archive
	Offset int64  // of the header
	Member string // "": not known
	Err    error
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s, byte %d", human.Name(e.Path), e.Offset)
	if e.Member != "" {
		text += ", " + human.Name(e.Member)
	}
	return text + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// walker reads the headers of one archive, one after another.
type walker struct {
	ctx     context.Context
	objects objects.Objects
	object  *source.Object
	ahead   objects.Ahead // the same objects, or nil

	buffer [window]byte
	have   []byte // the part of the archive in buffer
	at     int64  // where it begins
	stamp  source.Stamp
}

// walk calls each for the members of an archive that are files, in their order, with the offset of
// their contents. It leaves directories out.
func (w *walker) walk(each func(m member, offset int64) error) error {
	var long string // the name of the next member, from a header before it
	pax := paxRecords{size: -1}
	for at := int64(0); at < w.object.Size; {
		header, err := w.read(at, blockSize)
		if err != nil {
			return w.failed(at, "", err)
		}
		if len(bytes.TrimLeft(header, "\x00")) == 0 {
			if err := w.end(at + blockSize); err != nil {
				return err
			}
			break
		}
		m, err := parseHeader(header)
		if err != nil {
			return w.failed(at, "", err)
		}
		contents := at + blockSize
		switch m.kind {
		case typePAX, typeGlobalPAX, typeGNUName, typeGNULink:
			data, err := w.extended(contents, m.size)
			switch {
			case err != nil:
				return w.failed(at, m.name, err)
			case m.kind == typeGNUName:
				long = text(data)
			case m.kind == typePAX:
				if pax, err = parsePAX(data); err != nil {
					return w.failed(at, m.name, err)
				}
			case m.kind == typeGlobalPAX:
				global, err := parsePAX(data)
				if err == nil && (global.path != "" || global.size >= 0 || global.sparse) {
					err = errors.New("it gives all further members one name, one size or holes")
				}
				if err != nil {
					return w.failed(at, m.name, err)
				}
			}
			at = contents + padded(m.size)
			continue
		}
		sparse := m.kind == typeGNUSparse || pax.sparse
		m.apply(long, pax)
		long, pax = "", paxRecords{size: -1}
		if m.size > w.object.Size-contents {
			return w.failed(at, m.name, fmt.Errorf("the archive is cut off: the member has %d bytes, "+
				"and only %d follow", m.size, max(w.object.Size-contents, 0)))
		}
		if sparse {
			return w.failed(at, m.name, errors.New("it is sparse, so that its bytes are not the "+
				"file's; make the archive again without --sparse"))
		}
		if err := w.member(at, contents, m, each); err != nil {
			return err
		}
		at = contents + padded(m.size)
	}
	if long != "" || pax.path != "" {
		return w.failed(w.object.Size, "", errors.New("the archive is cut off after the name of a "+
			"member"))
	}
	return nil
}

func (m *member) apply(long string, pax paxRecords) {
	if long != "" {
		m.name = long
	}
	if pax.path != "" {
		m.name = pax.path
	}
	if pax.size >= 0 {
		m.size = pax.size
	}
}

// member passes on a member that is a file.
func (w *walker) member(at, contents int64, m member, each func(member, int64) error) error {
	switch m.kind {
	case typeRegular, typeOld, typeContig:
		if m.kind == typeOld && len(m.name) > 0 && m.name[len(m.name)-1] == '/' {
			return nil // a directory, before POSIX
		}
		if err := each(m, contents); err != nil {
			return w.failed(at, m.name, err)
		}
		return nil
	case typeDirectory, typeGNUVolume:
		return nil
	case typeHardLink, typeSymlink:
		return w.failed(at, m.name, errors.New("it is a link, and has no bytes; make the archive "+
			"again with --dereference --hard-dereference"))
	}
	return w.failed(at, m.name, fmt.Errorf("it is no file, but of the type %q", m.kind))
}

func padded(size int64) int64 { return (size + blockSize - 1) &^ (blockSize - 1) }

// end checks what follows the first block of zeros: a second one and padding. Programs pad archives
// to 20 blocks, so what is not zero there is another archive, which most programs ignore.
func (w *walker) end(at int64) error {
	const padding = 20 * blockSize
	for end := min(at+padding, w.object.Size); at < end; at += blockSize {
		block, err := w.read(at, min(blockSize, end-at))
		if err != nil {
			return w.failed(at, "", err)
		}
		if len(bytes.TrimLeft(block, "\x00")) > 0 {
			return w.failed(at, "", errors.New("there is more after the end of the archive, as if "+
				"two had been joined: join them with tar --concatenate, or give both"))
		}
	}
	return nil
}

// extended returns the contents of an extended header.
func (w *walker) extended(at, size int64) ([]byte, error) {
	if size > maxExtended {
		return nil, fmt.Errorf("an extended header of %d bytes, and at most %d are read", size,
			maxExtended)
	}
	return w.read(at, size)
}

// read returns n bytes of the archive, which are valid until the next call.
func (w *walker) read(at, n int64) ([]byte, error) {
	if rest := w.object.Size - at; rest < n {
		return nil, fmt.Errorf("the archive is cut off: %d bytes are needed, and %d follow", n,
			max(rest, 0))
	}
	if from := at - w.at; from >= 0 && from+n <= int64(len(w.have)) {
		return w.have[from : from+n], nil
	}
	end := at + window
	if w.ahead != nil { // files: others have no pages, and a request takes longer
		end = (at + n + window - 1) / window * window
	}
	buffer := w.buffer[:min(end-at, window, w.object.Size-at)]
	if n > window {
		buffer = make([]byte, n)
	}
	if w.ahead != nil {
		// The other archives' turn, while these bytes come.
		w.ahead.Ahead(w.object, at, int64(len(buffer)))
		runtime.Gosched()
	}
	stamp, err := w.objects.Read(w.ctx, w.object, at, [][]byte{buffer})
	if err != nil {
		return nil, err
	}
	w.stamp = stamp
	if n > window {
		return buffer, nil
	}
	w.have, w.at = buffer, at
	return buffer[:n], nil
}

func (w *walker) failed(at int64, member string, err error) error {
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	return &Error{Path: w.objects.Path(w.object.Name), Offset: at, Member: member, Err: err}
}
