package remote

import (
	"context"
	"errors"
	"sync"
	"unicode/utf8"

	"github.com/hdmlp/hdmlp/internal/source"
)

// A store lists names a page at a time, each page after the one before: a million objects are a
// thousand pages, of 50 ms or so each. So several goroutines list, each a range of names. One that
// has nothing to do takes the upper half of the range in which most names were found so far. How
// many names are in that half is not known; if there are none, that takes one request. As lower
// halves are halved again, by as many goroutines as there are, all soon list names.
const (
	// listers is how many goroutines list.
	listers = 32
	// page is how many names a range has to have had before it is split, and splits how often it then
	// is until it has had as many again.
	page   = 1000
	splits = 2
)

// listed is what a store said of an object.
type listed struct {
	name    string
	version Version
}

// span is a range of names that one goroutine lists.
type span struct {
	after string // names after this one
	end   string // and before this one; "": to the last
	found []listed
	count int  // of names found so far, passed on or not
	cuts  int  // how often it was split
	done  bool // all names have been found
	next  *span
}

// listing is a listing in progress.
type listing struct {
	place  *Objects
	prefix string

	mu      sync.Mutex // guards the following
	changed sync.Cond
	first   *span // of those whose names have not all been passed on, in the order of the names
	busy    int   // goroutines that list
	err     error
}

// List implements objects.Objects.
func (p *Objects) List(ctx context.Context, prefix string, each func(source.Object) error) error {
	if err := p.check(ctx, prefix); err != nil {
		return err
	}
	l := &listing{place: p, prefix: prefix, first: new(span)}
	l.changed.L = &l.mu
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel() // before the goroutines are waited for
	stop := context.AfterFunc(ctx, func() { l.fail(ctx.Err()) })
	defer stop()
	l.busy = 1
	all.Go(func() { l.work(ctx, l.first) })
	for range listers - 1 {
		all.Go(func() { l.work(ctx, nil) })
	}
	return l.passOn(each)
}

func (l *listing) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	l.changed.Broadcast()
}

// passOn calls each with what is found, in order, until all is.
func (l *listing) passOn(each func(source.Object) error) error {
	for {
		found, more, err := l.take()
		if err != nil {
			return err
		}
		for _, f := range found {
			if err := each(l.place.object(f.name, f.version)); err != nil {
				l.fail(err)
				return err
			}
		}
		if !more {
			return nil
		}
	}
}

// take waits for names of the first range, and takes them.
func (l *listing) take() (found []listed, more bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && len(l.first.found) == 0 && !l.first.done {
		l.changed.Wait()
	}
	if l.err != nil {
		return nil, false, l.err
	}
	found, l.first.found = l.first.found, nil
	if l.first.done {
		if l.first = l.first.next; l.first == nil {
			return found, false, nil
		}
	}
	return found, true, nil
}

// work lists a range and, once it is done, parts of others until none can be split any more.
func (l *listing) work(ctx context.Context, s *span) {
	for {
		if s == nil {
			if s = l.split(); s == nil {
				return
			}
		}
		err := l.list(ctx, s)
		l.mu.Lock()
		s.done = true
		l.busy--
		if err != nil && l.err == nil {
			l.err = err
		}
		l.changed.Broadcast()
		l.mu.Unlock()
		if err != nil {
			return
		}
		s = nil
	}
}

// split waits for a range that can be split, and returns its upper part; nil: all names are found,
// or the listing has failed.
func (l *listing) split() *span {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && l.busy > 0 {
		var longest *span
		at := ""
		for s := l.first; s != nil; s = s.next {
			if s.done || s.cuts >= splits*(s.count/page) || longest != nil && s.count <= longest.count {
				continue
			}
			if mid := middle(s.after, s.end, l.prefix); mid != "" {
				longest, at = s, mid
			}
		}
		if longest != nil {
			upper := &span{after: at, end: longest.end, next: longest.next}
			// The name at itself belongs to the lower part, which ends after it.
			longest.end, longest.next = at+"\x00", upper
			longest.cuts++
			l.busy++
			return upper
		}
		l.changed.Wait()
	}
	return nil
}

// list lists a range of names, and goes on where it was after failures for the moment.
func (l *listing) list(ctx context.Context, s *span) error {
	for {
		before := s.after // which only this goroutine changes
		err := l.place.again(ctx, l.prefix, func(ctx context.Context) error { return l.once(ctx, s) })
		if !errors.Is(err, source.ErrUnavailable) || s.after == before {
			return err
		}
	}
}

// errEnd ends the listing of a range.
var errEnd = errors.New("the end of a range of names")

func (l *listing) once(ctx context.Context, s *span) error {
	l.place.counts.lists.Add(1)
	ctx, quiet := l.place.quiet(ctx)
	defer quiet.stop()
	err := l.place.store.List(ctx, l.prefix, s.after, func(name string, v Version) error {
		quiet.transferred()
		l.mu.Lock()
		defer l.mu.Unlock()
		if s.end != "" && name >= s.end || l.err != nil {
			return errEnd
		}
		s.after = name
		s.count++
		s.found = append(s.found, listed{name, v})
		if s.count%page == 0 || s == l.first && len(s.found) == 1 {
			l.changed.Broadcast()
		}
		return nil
	})
	if errors.Is(err, errEnd) {
		return nil
	}
	return quiet.cause(err)
}

// Names are split at characters between these. Those of most keys are among the first.
const (
	leastRune = ' '
	asciiEnd  = '~' + 1
	mostRune  = 0xFFFF
	surrogate = 0xD800 // to 0xDFFF are none of UTF-8
)

// middle returns a text between two names, of which the later one, if it is not "", has the prefix
// as well; "" if there is none of such characters.
func middle(after, end, prefix string) string {
	if len(after) < len(prefix) {
		after = prefix
	}
	// What both have in common stays; behind it a character between those of the two is chosen. What
	// is chosen further behind is after `after`, and before end because of what is before it.
	at, bounded := len(prefix), end != ""
	for at <= len(after) {
		first, size := utf8.DecodeRuneInString(after[at:])
		low, high := rune(leastRune-1), rune(asciiEnd)
		if size > 0 {
			low = max(first, low)
		}
		if low >= asciiEnd {
			high = mostRune
		}
		if bounded {
			last, n := utf8.DecodeRuneInString(end[at:])
			if n > 0 && n == size && last == first {
				at += size
				continue
			}
			high = min(max(last, leastRune-1), high)
		}
		mid := low + (high-low)/2
		if mid >= surrogate && low < surrogate-1 {
			mid = min(mid, surrogate-1)
		}
		if mid > low && mid < high && utf8.ValidString(after[:at]) && utf8.ValidRune(mid) {
			return after[:at] + string(mid)
		}
		bounded = false
		at += max(size, 1)
	}
	return ""
}
