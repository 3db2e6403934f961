// Package strips reads a dataset that is a directory with one file per class, CLASS.strip: its
// samples one after another, each preceded by its length, 4 bytes, little-endian.
//
// A Strips is immutable once it is open; all methods may be called concurrently, Close last.
package strips

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/tree"
)

const suffix = ".strip"

// Kind describes strips.
func Kind() source.Kind {
	return source.Kind{
		Name: "strips",
		Help: "a directory with one file per class, which holds its samples one after another",
		Open: func(ctx context.Context, path string,
			o source.OpenOptions,
		) (source.Indexed, error) {
			s, err := open(ctx, path, o.View)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
	}
}

// Strips is an open dataset.
type Strips struct {
	files   []*os.File // by class
	sizes   []int64    // of the files when they were listed, in bytes
	index   *source.Index
	offsets []int64 // by sample, of its bytes in their file
}

func open(ctx context.Context, path string, view *source.View) (_ *Strips, err error) {
	root, err := tree.Open(path, view)
	if err != nil {
		return nil, &source.Error{Path: path, Kind: source.ErrNoDirectory, Err: err}
	}
	defer root.Close()
	classes, err := classesIn(root)
	if err != nil || len(classes) == 0 {
		return nil, &source.Error{
			Path: path, Kind: source.ErrKind, Hint: "it has no file *" + suffix, Err: err,
		}
	}
	s := &Strips{}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	b := source.NewBuilder(classes, []string{suffix})
	b.Directory(source.Directory{Class: -1}) // the root, which has no samples of its own
	for class, name := range classes {
		where := filepath.Join(path, name+suffix)
		fd, err := root.Open([]byte(name+suffix+"\x00"), unix.O_RDONLY|unix.O_CLOEXEC)
		if err != nil {
			return nil, &source.Error{Path: where, Kind: source.ErrUnavailable, Err: err}
		}
		s.files = append(s.files, os.NewFile(uintptr(fd), where))
		b.Directory(source.Directory{Path: name, Class: class})
		if err := s.list(ctx, b, s.files[class]); err != nil {
			return nil, err
		}
	}
	s.index, err = b.Build()
	return s, err
}

// classesIn returns the classes that have a file, sorted.
func classesIn(root *tree.Root) (classes []string, err error) {
	entries, err := tree.NewLister().List(root.FD(), func() {})
	for _, e := range entries {
		if class, ok := strings.CutSuffix(e.Name, suffix); ok {
			classes = append(classes, class)
		}
	}
	slices.Sort(classes)
	return classes, err
}

// list adds the samples of one file. The stamp is taken first, so that a file which is written to
// meanwhile differs from the index afterwards.
func (s *Strips) list(ctx context.Context, b *source.Builder, f *os.File) error {
	bad := func(kind, err error) error {
		return &source.Error{Path: f.Name(), Kind: kind, Err: err}
	}
	st, err := tree.StatOpen(int(f.Fd()))
	if err != nil {
		return bad(source.ErrUnavailable, err)
	}
	modified, changed := tree.Times(&st)
	stamp := source.NewStamp(st.Size, modified, changed, st.Ino)
	var head [4]byte
	n, at := 0, int64(0)
	for ; at < st.Size && ctx.Err() == nil; n++ {
		if _, err := f.ReadAt(head[:], at); err != nil && !errors.Is(err, io.EOF) {
			return bad(source.ErrUnavailable, err)
		}
		size := int64(binary.LittleEndian.Uint32(head[:]))
		if at+4+size > st.Size {
			return bad(source.ErrFormat, fmt.Errorf("the sample at byte %d ends after the file", at))
		}
		b.Sample(fmt.Sprintf("%09d", n), size, modified, stamp)
		s.offsets = append(s.offsets, at+4)
		at += 4 + size
	}
	if n == 0 && ctx.Err() == nil {
		return bad(source.ErrEmptyClass, nil)
	}
	s.sizes = append(s.sizes, st.Size)
	return ctx.Err()
}

// Index returns the index of the samples.
func (s *Strips) Index() *source.Index { return s.index }

// Read reads sample id into dst, and then looks whether its file is still as listed.
func (s *Strips) Read(ctx context.Context, id int, dst []byte) (source.Stamp, error) {
	if err := s.check(ctx, id); err != nil {
		return 0, err
	}
	if int64(len(dst)) != s.index.Size(id) {
		return 0, s.failed(id, source.ErrLength, nil)
	}
	_, err := s.files[s.index.Label(id)].ReadAt(dst, s.offsets[id])
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, s.failed(id, source.ErrUnavailable, err)
	}
	return s.Stat(ctx, id)
}

// Stat compares the sample's file with the index, and returns its stamp.
func (s *Strips) Stat(ctx context.Context, id int) (source.Stamp, error) {
	if err := s.check(ctx, id); err != nil {
		return 0, err
	}
	class := s.index.Label(id)
	st, err := tree.StatOpen(int(s.files[class].Fd()))
	if err != nil {
		return 0, s.failed(id, source.ErrUnavailable, err)
	}
	modified, changed := tree.Times(&st)
	stamp := source.NewStamp(st.Size, modified, changed, st.Ino)
	switch {
	case st.Size == 0:
		return 0, s.failed(id, source.ErrEmpty, nil)
	case st.Size < s.sizes[class]:
		return 0, s.failed(id, source.ErrShort, nil)
	case st.Size > s.sizes[class]:
		return 0, s.failed(id, source.ErrLong, nil)
	case stamp.Written(s.index.Stamp(id)):
		return 0, s.failed(id, source.ErrChanged, nil)
	}
	return stamp, nil
}

// Path returns where the sample lies, for messages.
func (s *Strips) Path(id int) string {
	return fmt.Sprintf("%s at byte %d", s.files[s.index.Label(id)].Name(), s.offsets[id])
}

// Close closes the files.
func (s *Strips) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func (s *Strips) check(ctx context.Context, id int) error {
	switch {
	case id < 0 || id >= s.index.Len():
		return &source.SampleError{ID: id, Kind: source.ErrNoSample}
	case ctx.Err() != nil:
		return s.failed(id, source.ErrUnavailable, ctx.Err())
	}
	return nil
}

func (s *Strips) failed(id int, kind, err error) error {
	return &source.SampleError{ID: id, Path: s.Path(id), Kind: kind, Err: err}
}
