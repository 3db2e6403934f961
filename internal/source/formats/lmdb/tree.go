package lmdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

const (
	// readers is how many reads are in progress at once.
	readers = 32
	// maxRead is how many bytes of adjacent pages are one read.
	maxRead = 1 << 20
)

// Error is the error of a data file: where in it, and why.
type Error struct {
	Path   string
	Offset int64 // of the page or the value
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s, byte %d: %v", human.Name(e.Path), e.Offset, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// file is a data file that is being indexed.
type file struct {
	snapshot
	objects objects.Objects
	object  source.Object
	isMain  bool              // the tree is the main one, which may have named databases
	datum   bool              // values are Datums
	prefix  bool              // what precedes a _ or / in keys is the name of a class
	found   func(records int) // is called for each leaf; may be nil
}

// openFile reads the meta pages of a data file and returns the state after its last transaction.
func openFile(ctx context.Context, o objects.Objects, object source.Object) (*file, error) {
	f := &file{objects: o, object: object}
	var err error
	if f.snapshot, err = f.meta(ctx, 0, 0); err != nil {
		return nil, err
	}
	other, err := f.meta(ctx, 1, f.pageSize)
	if err != nil {
		return nil, err
	}
	if other.pageSize != f.pageSize {
		return nil, f.failed(0, errors.New("its meta pages differ in the size of pages: the file is "+
			"damaged"))
	}
	f.snapshot = newer(f.snapshot, other)
	return f, nil
}

// newer returns the later one of two states. A program that was killed leaves the one of its last
// complete transaction, and pages that no tree has.
func newer(a, b snapshot) snapshot {
	if b.transaction > a.transaction {
		return b
	}
	return a
}

func (f *file) meta(ctx context.Context, n uint64, at int64) (snapshot, error) {
	b := make([]byte, metaSize)
	if err := f.read(ctx, at, b); err != nil {
		return snapshot{}, err
	}
	s, err := parseMeta(b, n)
	if err != nil {
		return s, f.failed(at, err)
	}
	return s, nil
}

// read fills b with the file's bytes from at on.
func (f *file) read(ctx context.Context, at int64, b []byte) error {
	if at < 0 || at > f.object.Size || int64(len(b)) > f.object.Size-at {
		return f.failed(at, fmt.Errorf("the file is cut off: it has %d bytes", f.object.Size))
	}
	_, err := f.objects.Read(ctx, &f.object, at, [][]byte{b})
	return err
}

func (f *file) failed(at int64, err error) error {
	var known *Error
	var read *objects.Error
	if errors.As(err, &known) || errors.As(err, &read) {
		return err
	}
	return &Error{Path: f.objects.Path(f.object.Name), Offset: at, Err: err}
}

// child is a page of a level of a tree, and the least key that it may have; none: no limit.
type child struct {
	number uint64
	low    []byte
}

// leaves reads a tree level by level, and returns its leaves in the order of their keys.
func (f *file) leaves(ctx context.Context, d database) ([]leaf, error) {
	if err := d.check(); err != nil || d.root == noPage {
		return nil, err
	}
	level := []child{{number: d.root}}
	for range d.depth - 1 {
		next := make([][]child, len(level))
		if err := f.level(ctx, d, level, branchPage, func(i int, _ page, list []node) error {
			for _, n := range list {
				next[i] = append(next[i], child{n.child, slices.Clone(n.key)})
			}
			return nil
		}); err != nil {
			return nil, err
		}
		level = slices.Concat(next...)
	}
	found := make([]leaf, len(level))
	if err := f.level(ctx, d, level, leafPage, func(i int, p page, list []node) (err error) {
		found[i], err = f.leaf(ctx, p, list)
		return err
	}); err != nil {
		return nil, err
	}
	sum := uint64(0)
	for i := range found {
		sum += uint64(len(found[i].items) + len(found[i].named))
	}
	if sum != d.entries {
		return nil, fmt.Errorf("the tree has %d records, and should have %d: the file is damaged",
			sum, d.entries)
	}
	return found, nil
}

// level reads the pages of a level, several runs of adjacent ones at once, and calls each with the
// place and the entries of each page, from several goroutines.
func (f *file) level(ctx context.Context, d database, level []child, kind uint16,
	each func(i int, p page, list []node) error,
) error {
	order := make([]int, len(level))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Compare(level[i].number, level[j].number)
	})
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for len(order) > 0 && reading.Err() == nil {
		n := 1
		for n < len(order) && int64(n+1)*f.pageSize <= maxRead &&
			level[order[n]].number == level[order[n-1]].number+1 {
			n++
		}
		run := order[:n]
		order = order[n:]
		group.Go(func() error { return f.run(reading, d, level, run, kind, each) })
	}
	return cmp.Or(group.Wait(), ctx.Err())
}

// run reads adjacent pages at once.
func (f *file) run(ctx context.Context, d database, level []child, run []int, kind uint16,
	each func(i int, p page, list []node) error,
) error {
	first := level[run[0]].number
	last := first + uint64(len(run)) - 1
	if err := f.check(first, last); err != nil {
		return f.failed(0, err)
	}
	data := make([]byte, int64(len(run))*f.pageSize)
	at := int64(first) * f.pageSize
	if err := f.read(ctx, at, data); err != nil {
		return err
	}
	for k, i := range run {
		var high []byte
		if i+1 < len(level) {
			high = level[i+1].low
		}
		p, err := parsePage(first+uint64(k), data[int64(k)*f.pageSize:][:f.pageSize], kind)
		var list []node
		if err == nil {
			list, err = d.entriesOf(p, kind, level[i].low, high)
		}
		if err == nil {
			err = each(i, p, list)
		}
		if err != nil {
			return f.failed(at+int64(k)*f.pageSize, err)
		}
	}
	return nil
}

// check returns an error unless the file has pages first to last.
func (f *file) check(first, last uint64) error {
	switch {
	case first < 2 || last < first || last >= f.pages:
		return fmt.Errorf("pages %d to %d are in the tree, and the file has pages 2 to %d: the file "+
			"is damaged", first, last, f.pages-1)
	case last >= uint64(f.object.Size/f.pageSize):
		return fmt.Errorf("the file is cut off: page %d is in use, and ends after its %d bytes", last,
			f.object.Size)
	}
	return nil
}
