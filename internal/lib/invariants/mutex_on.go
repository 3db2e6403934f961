//go:build invariants

package invariants

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Mutex is a sync.Mutex for locks that nest with others. In builds with the tag, the order in which
// goroutines take such locks is recorded by the type Of that the lock guards, and taking one in the
// reverse order panics, even if no two goroutines contend for it. The zero value is unlocked. Locks
// of one type must not nest.
type Mutex[Of any] struct{ mu sync.Mutex }

// Lock locks m.
func (m *Mutex[Of]) Lock() {
	held.acquire(class[Of]())
	m.mu.Lock()
}

// TryLock locks m if it is unlocked, and reports whether it did. It cannot deadlock by itself, but
// taking other locks while m is held can.
func (m *Mutex[Of]) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	held.tried(class[Of]())
	return true
}

// Unlock unlocks m.
func (m *Mutex[Of]) Unlock() {
	held.release(class[Of]())
	m.mu.Unlock()
}

func class[Of any]() string { return reflect.TypeFor[Of]().String() }

// held are the locks of this process. The order is process-wide: two tests in which locks nest
// differently are a finding, too.
var held = locks{by: map[string][]string{}, after: map[string]map[string]bool{}}

type locks struct {
	mu    sync.Mutex                 // guards the following
	by    map[string][]string        // by goroutine: the classes that it holds, in locking order
	after map[string]map[string]bool // by class: the classes that were locked while it was held
}

// acquire notes that this goroutine is about to take a lock of a class, and panics if that can
// cause a deadlock.
func (l *locks) acquire(class string) {
	me := goroutine()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, outer := range l.by[me] {
		if path := l.path(class, outer, nil); path != nil {
			panic(fmt.Sprintf("invariant violated: lock of %s taken while that of %s is held; "+
				"elsewhere they are taken in the order %s",
				class, outer, strings.Join(path, ", ")))
		}
	}
	for _, outer := range l.by[me] {
		if l.after[outer] == nil {
			l.after[outer] = map[string]bool{}
		}
		l.after[outer][class] = true
	}
	l.by[me] = append(l.by[me], class)
}

func (l *locks) tried(class string) {
	me := goroutine()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.by[me] = append(l.by[me], class)
}

// release notes that this goroutine unlocks a lock of a class; it may have been locked by another
// goroutine.
func (l *locks) release(class string) {
	me := goroutine()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.remove(me, class) {
		for other := range maps.Keys(l.by) {
			if l.remove(other, class) {
				return
			}
		}
	}
}

func (l *locks) remove(goroutine, class string) bool {
	mine := l.by[goroutine]
	for i := len(mine) - 1; i >= 0; i-- {
		if mine[i] == class {
			if mine = slices.Delete(mine, i, i+1); len(mine) == 0 {
				delete(l.by, goroutine)
			} else {
				l.by[goroutine] = mine
			}
			return true
		}
	}
	return false
}

// path returns how locks were seen to nest from one class to another, nil if they were not. seen
// ends cycles: a Mutex that panics records none, but path does not depend on that.
func (l *locks) path(from, to string, seen []string) []string {
	if slices.Contains(seen, from) {
		return nil
	}
	seen = append(seen, from)
	if from == to {
		return seen
	}
	for next := range l.after[from] {
		if path := l.path(next, to, seen); path != nil {
			return path
		}
	}
	return nil
}

// goroutine returns the number of the calling goroutine, from the first line of its stack.
func goroutine() string {
	var buffer [64]byte
	line := buffer[:runtime.Stack(buffer[:], false)]
	number, _, _ := bytes.Cut(bytes.TrimPrefix(line, []byte("goroutine ")), []byte(" "))
	return string(number)
}
