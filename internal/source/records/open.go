package records

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/hangs"
	"github.com/hdmlp/hdmlp/internal/source/index"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// watched is a place whose calls a monitor watches.
type watched struct {
	objects.Objects
	ahead   objects.Ahead // the same place, or nil
	monitor *hangs.Monitor

	mu   sync.Mutex      // guards the following
	idle []*hangs.Caller // of calls that have returned
}

func watch(o objects.Objects, m *hangs.Monitor) *watched {
	ahead, _ := o.(objects.Ahead)
	return &watched{Objects: o, ahead: ahead, monitor: m}
}

// begin begins a call; done must follow.
func (w *watched) begin(op, name string) *hangs.Caller {
	w.mu.Lock()
	defer w.mu.Unlock()
	var c *hangs.Caller
	if n := len(w.idle); n > 0 {
		c, w.idle = w.idle[n-1], w.idle[:n-1]
	} else {
		c = w.monitor.Caller()
	}
	c.Begin(op, "", name)
	return c
}

func (w *watched) done(c *hangs.Caller) {
	c.End()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle = append(w.idle, c)
}

func (w *watched) Stat(ctx context.Context, name string) (source.Object, error) {
	defer w.done(w.begin("stat", name))
	return w.Objects.Stat(ctx, name)
}

func (w *watched) Read(ctx context.Context, o *source.Object, offset int64, parts [][]byte,
) (source.Stamp, error) {
	defer w.done(w.begin("read", o.Name))
	return w.Objects.Read(ctx, o, offset, parts)
}

// Ahead implements objects.Ahead.
func (w *watched) Ahead(o *source.Object, offset, n int64) {
	if w.ahead == nil {
		return
	}
	defer w.done(w.begin("read ahead", o.Name))
	w.ahead.Ahead(o, offset, n)
}

// attempts is how often a dataset is indexed that changes meanwhile.
const attempts = 3

// open finds the index, or makes and writes it.
func (x *opening) open(ctx context.Context, m *hangs.Monitor) (*Opened, error) {
	x.monitor = m
	if x.format.Pattern != "" {
		if err := x.expand(ctx); err != nil {
			return nil, err
		}
	}
	if err := x.locate(); err != nil {
		return nil, err
	}
	beside := index.NewBeside(x.path, x.rootFD, x.locations)
	files := index.Files{
		Root: x.path, RootFD: x.rootFD(), Rootless: x.directory == nil,
		Locations: x.locations, Memory: x.memory,
		Warn: x.options.Tell, Calls: m.Caller(),
	}
	if len(x.locations) > 0 {
		if err := files.Check(); err != nil {
			return nil, err
		}
	}
	opened := &Opened{Beside: beside, at: x.at, kept: x.kept()}
	if x.options.Unscanned {
		opened.Source = New(x.place, nil)
		return opened, nil
	}
	x.beginOffer()
	err := x.settle(ctx, opened, &files)
	x.endOffer(err)
	if err != nil {
		return nil, err
	}
	opened.Source = New(x.place, x.known)
	if opened.Versioned() {
		opened.fresh()
	}
	return opened, nil
}

// settle sets known to an up-to-date index, and in opened where it is from.
func (x *opening) settle(ctx context.Context, opened *Opened, files *index.Files) error {
	made := x.made()
	known, err := x.given(ctx, made)
	if err != nil {
		return err
	}
	opened.from = source.FromKept
	wasGiven := known != nil
	if wasGiven {
		opened.from = source.FromGiven
	} else if x.kept() && !x.rescans() {
		known, opened.indexPath = files.Read(made)
	}
	if err := x.find(ctx, opened, files, known); err != nil {
		return err
	}
	if wasGiven && opened.from != source.FromGiven {
		x.options.Tell(fmt.Sprintf("%s: the index that was given is of other versions of the "+
			"shards, and was not used; make it again with `hdmlp dataset --index`", x.path))
	}
	return nil
}

// find sets known to an up-to-date index: the one that was found, one that another node or process
// has made meanwhile, or a new one.
func (x *opening) find(ctx context.Context, opened *Opened, files *index.Files,
	known *source.Index,
) error {
	same, err := x.same(ctx, known)
	if err != nil || same {
		x.known = known
		return err
	}
	if x.known, err = x.receive(ctx); err != nil {
		return err
	}
	if x.known != nil {
		opened.from = source.FromNode
		opened.indexPath, opened.indexErr = files.Write(x.known)
		return nil
	}
	made := x.made()
	m, waited, err := x.begin(ctx, made)
	if err != nil {
		return err
	}
	defer func() { m.end(x.known != nil) }()
	if waited {
		known, opened.indexPath = files.Read(made)
		if same, err = x.same(ctx, known); err != nil || same {
			opened.from = source.FromKept
			x.known = known
			return err
		}
	}
	for attempt := 1; ; attempt++ {
		x.known, err = x.index(ctx, x.keeping(m))
		if !errors.Is(err, errOutdated) || attempt == attempts {
			break
		}
	}
	if err != nil {
		x.known = nil
		return err
	}
	opened.from, opened.resumed = source.FromObjects, m.known()
	if x.kept() {
		// A failure only means that the next start has to find the samples again.
		opened.indexPath, opened.indexErr = files.Write(x.known)
	}
	return nil
}

// keeping returns what is kept while an index is made.
func (x *opening) keeping(m *making) formats.Kept {
	if x.offer == nil {
		return m.kept()
	}
	return stepping{m.kept(), x.offer}
}

// rescans reports whether an index is made in any case.
func (x *opening) rescans() bool { return option.Get[bool](x.options.Values, source.RescanKey) }

// kept reports whether an index file is kept.
func (x *opening) kept() bool { return !x.format.Manifest && !x.format.Listing }

// rootFD returns a descriptor of the directory; -1: the dataset is in none.
func (x *opening) rootFD() int {
	if x.directory == nil {
		return -1
	}
	return x.directory.Root().FD()
}

// locate sets where the index file, and what lies beside it, may be. A manifest's directory is only
// what its files have in common, so that nothing is written there, nor to what a URL names.
func (x *opening) locate() (err error) {
	dir := option.Get[string](x.options.Values, source.IndexDirKey)
	switch {
	case x.format.Manifest:
		x.locations, err = index.OfList(x.path, dir, x.format.Name, x.options.Manifest.Sum())
	case x.directory == nil:
		x.locations, err = index.Elsewhere(x.path, dir, x.asked())
	default:
		x.locations, err = index.Locations(x.path, dir, x.asked())
	}
	if err != nil {
		return &source.Error{Path: x.path, Kind: source.ErrNoDirectory, Err: err}
	}
	return nil
}

// asked returns what distinguishes the index from others of the directory: what was asked for.
func (x *opening) asked() []string {
	asked := []string{x.format.Name}
	for _, o := range x.format.Options {
		value, given := x.options.Values[o.Key]
		if !given {
			value, _, _ = o.Read(o.Default) // which is never wrong
		}
		asked = append(asked, fmt.Sprintf("%s=%q", o.Key, value))
	}
	return append(asked, fmt.Sprintf("%q", x.patterns()))
}

// made returns what an index was made of, by itself: what was asked for, and which objects that
// were.
func (x *opening) made() []string {
	if x.format.Manifest {
		return nil
	}
	sum := xxh3.HashString128(strings.Join(x.names, "\x00")).Bytes()
	return append(x.asked(), hex.EncodeToString(sum[:]))
}

// errOutdated reports that objects changed while they were read.
var errOutdated = errors.New("its files changed while they were read")

// same reports whether an index is up to date; nil is none.
func (x *opening) same(ctx context.Context, known *source.Index) (bool, error) {
	if known == nil || compareAll(ctx, x.objects, known) != nil {
		return false, nil
	}
	digests, err := x.contents(ctx, known)
	if errors.Is(err, errOutdated) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, same := source.SameContents(digests, known.Contents())
	return same, nil
}

// index makes an index.
func (x *opening) index(ctx context.Context, kept formats.Kept) (*source.Index, error) {
	found, err := x.format.Index(ctx, x.objects, x.names, formats.Options{
		Values: x.options.Values, Manifest: x.options.Manifest, Progress: x.options.Progress,
		Origin: x.made(), Kept: kept,
	})
	if err != nil {
		return nil, err
	}
	if found.Len() == 0 {
		return nil, &source.Error{
			Path: x.path, Kind: source.ErrNoSamples, Hint: "give files that have some",
		}
	}
	digests, err := x.contents(ctx, found)
	if err != nil {
		return nil, err
	}
	return found.WithContents(digests)
}

// recognise returns an error unless the dataset is below a directory that was opened again.
func (x *opening) recognise(ctx context.Context, again objects.Objects) error {
	if x.known == nil {
		return nil // it is being opened
	}
	if x.format.Objects != nil {
		again = x.format.Objects(again)
	}
	digests, err := contentsOf(ctx, New(keepOpen{again}, x.known))
	if err != nil {
		return err
	}
	return source.Recognise(digests, x.known.Contents())
}

// contents returns the digests of the excerpts of an index.
func (x *opening) contents(ctx context.Context, of *source.Index) ([][16]byte, error) {
	return contentsOf(ctx, New(keepOpen{x.objects}, of))
}

// keepOpen is a place that its user does not close.
type keepOpen struct{ objects.Objects }

func (keepOpen) Close() error { return nil }

// Versioned implements objects.Versioned.
func (k keepOpen) Versioned() bool {
	v, ok := k.Objects.(objects.Versioned)
	return ok && v.Versioned()
}
