package records

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/index"
)

// The index of what is at a URL takes many requests. Processes that open the same dataset, and keep
// indexes in the same directory, make it one after another: those that come later wait, and find
// it. What is found in an object is kept in the journal, so that it need not be found again if the
// index is not finished.
const (
	// journalShare is the divisor of the available memory that the journal may take, and mostJournal
	// its largest size.
	journalShare = 8
	mostJournal  = 4 << 30
	// askEvery is how often a process looks whether the other one has made the index, which sets the
	// time of the journal every 10 s: after mostSilence without it is not waited for any more.
	askEvery    = 250 * time.Millisecond
	mostSilence = 2 * time.Minute
)

// making is the making of an index that may be interrupted. nil keeps nothing.
type making struct {
	journal *index.Journal
	resumed atomic.Int64 // objects that were known
}

var _ formats.Kept = (*making)(nil)

// version returns a name for an object in this version; ok is false if it is not known.
func version(o *source.Object) (name [16]byte, ok bool) {
	text := fmt.Sprintf("%q %d %x %x %d", o.Name, o.Size, o.Tag, o.Stamp, o.Modified)
	return xxh3.HashString128(text).Bytes(), o.Tag != [16]byte{}
}

// Found implements formats.Kept.
func (m *making) Found(o *source.Object) []byte {
	name, ok := version(o)
	if !ok {
		return nil
	}
	data := m.journal.Found(name)
	if data != nil {
		m.resumed.Add(1)
	}
	return data
}

// Keep implements formats.Kept.
func (m *making) Keep(o *source.Object, data []byte) {
	if name, ok := version(o); ok {
		m.journal.Keep(name, data)
	}
}

// end is called when the index has been made, or could not be.
func (m *making) end(made bool) {
	if m != nil {
		m.journal.Close(made)
	}
}

// known returns how many objects were known.
func (m *making) known() int {
	if m == nil {
		return 0
	}
	return int(m.resumed.Load())
}

// kept returns m as the format uses it.
func (m *making) kept() formats.Kept {
	if m == nil {
		return nil
	}
	return m
}

// begin begins to make the index, once no other process does. waited reports whether another one
// did, so that the index may be there.
func (x *opening) begin(ctx context.Context, made []string) (m *making, waited bool, err error) {
	if x.directory != nil || !x.kept() || x.rescans() {
		return nil, false, nil
	}
	what, most := []byte(strings.Join(made, "\x00")), int64(mostJournal)
	if x.memory != nil {
		available, err := x.memory()
		if err != nil {
			return nil, false, err
		}
		most = min(most, available/journalShare)
	}
	files := index.Files{
		Root: x.path, RootFD: -1, Rootless: true, Locations: x.locations, Calls: x.monitor.Caller(),
	}
	var last time.Time // of the journal
	since := time.Now()
	for {
		journal, err := files.Journal(what, most)
		switch {
		case err == nil:
			return &making{journal: journal}, waited, nil
		case !errors.Is(err, index.ErrLocked):
			return nil, waited, nil // it is made without, and cannot be written there either
		case !waited:
			waited = true
			x.options.Tell(x.path + ": another process is making the index, which is waited for")
		}
		now := time.Now()
		if touched := files.Touched(); !touched.Equal(last) {
			last, since = touched, now
		}
		if now.Sub(since) > mostSilence {
			x.options.Tell(fmt.Sprintf("%s: the process that is making the index has shown no sign of "+
				"life for %v, so that this one makes it as well", x.path, mostSilence))
			return nil, waited, nil
		}
		select {
		case <-time.After(askEvery):
		case <-ctx.Done():
			return nil, waited, ctx.Err()
		}
	}
}

// history is what it took to make indexes in this process, by where they are: the process of a job
// finds the index that was made when its dataset was described.
type history struct {
	mu   sync.Mutex // guards the following
	made map[string]past
}

type past struct {
	fingerprint [16]byte
	took        source.Indexing
}

// note notes what it took to open a dataset, if its index was made here or by another node. It
// returns that, or else what it took to have its index before.
func (h *history) note(path string, x *source.Index, took source.Indexing) source.Indexing {
	if path == "" {
		return took
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if took.From == source.FromObjects || took.From == source.FromNode {
		if h.made == nil {
			h.made = map[string]past{}
		}
		h.made[path] = past{x.Fingerprint(), took}
	} else if p, ok := h.made[path]; ok && p.fingerprint == x.Fingerprint() {
		return p.took
	}
	return took
}
