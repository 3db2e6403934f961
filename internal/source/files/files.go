// Package files is a source whose samples are ranges of any regular files that a program names. It
// is for measurements: it has no index file, and does not detect that a file has changed.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/source"
)

// Files implements source.Source, Locator, Prober and Dropper. It is safe for concurrent use.
type Files struct {
	paths   []string
	offsets []int64 // nil: all begin with their files
	index   *source.Index
}

// New returns the source of samples in these files, with these sizes, in bytes, that begin there;
// nil means with their files.
func New(paths []string, offsets, sizes []int64) (*Files, error) {
	if len(paths) == 0 || len(paths) != len(sizes) || offsets != nil && len(paths) != len(offsets) {
		return nil, fmt.Errorf("%d files with %d offsets and %d sizes", len(paths), len(offsets),
			len(sizes))
	}
	b := source.NewBuilder([]string{"files"}, nil)
	b.Directory(source.Directory{Class: -1})
	b.Directory(source.Directory{Class: 0, Path: "files"})
	for id, size := range sizes {
		b.Sample(fmt.Sprintf("%09d", id), size, 0, 0)
	}
	index, err := b.Build()
	if err != nil {
		return nil, err
	}
	return &Files{paths, offsets, index}, nil
}

// Index returns the sizes.
func (f *Files) Index() *source.Index { return f.index }

// Path returns where a sample is.
func (f *Files) Path(id int) string { return f.paths[id] }

// Close does nothing: no file stays open.
func (f *Files) Close() error { return nil }

// offset returns where a sample begins in its file.
func (f *Files) offset(id int) int64 {
	if f.offsets == nil {
		return 0
	}
	return f.offsets[id]
}

// open opens the file of a sample, which must be a regular one.
func (f *Files) open(ctx context.Context, id int) (*os.File, error) {
	if ctx.Err() != nil {
		return nil, f.failed(id, ctx.Err())
	}
	file, err := os.OpenFile(f.paths[id], os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, f.failed(id, err)
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, f.failed(id, errors.Join(err, errors.New("not a regular file")))
	}
	return file, nil
}

func (f *Files) failed(id int, err error) error {
	kind := source.ErrUnreadable
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		kind = source.ErrUnavailable
	case errors.Is(err, fs.ErrNotExist):
		kind = source.ErrMissing
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		kind = source.ErrShort
	}
	return &source.SampleError{ID: id, Path: f.paths[id], Kind: kind, Err: err}
}

// Read implements source.Source. The stamp is 0.
func (f *Files) Read(ctx context.Context, id int, dst []byte) (source.Stamp, error) {
	file, err := f.open(ctx, id)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if _, err := file.ReadAt(dst, f.offset(id)); err != nil && len(dst) > 0 {
		return 0, f.failed(id, err)
	}
	return 0, nil
}

// Stat implements source.Source. There are no stamps.
func (f *Files) Stat(ctx context.Context, id int) (source.Stamp, error) {
	file, err := f.open(ctx, id)
	if err != nil {
		return 0, err
	}
	return 0, file.Close()
}

// Probe implements source.Prober.
func (f *Files) Probe(ctx context.Context, id int) error {
	file, err := f.open(ctx, id)
	if err != nil {
		return err
	}
	defer file.Close()
	var few [512]byte
	host.DropCached(int(file.Fd()), f.offset(id), int64(len(few)))
	if _, err := file.ReadAt(few[:], f.offset(id)); err != nil && !errors.Is(err, io.EOF) {
		return f.failed(id, err)
	}
	return nil
}

// Drop implements source.Dropper.
func (f *Files) Drop(ctx context.Context, id int) (cached bool, err error) {
	file, err := f.open(ctx, id)
	if err != nil {
		return false, err
	}
	defer file.Close()
	length := f.index.Size(id)
	if f.offsets == nil {
		length = 0 // all of the file
	}
	return host.DropCached(int(file.Fd()), f.offset(id), length), nil
}
