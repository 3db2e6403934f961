//go:build invariants

package invariants

import (
	"strings"
	"sync"
	"testing"
)

type (
	outer struct{}
	inner struct{}
	third struct{}
)

// The message that is returned is the one with which f panics.
func says(t *testing.T, f func()) (message string) {
	t.Helper()
	defer func() {
		var ok bool
		if message, ok = recover().(string); !ok {
			t.Fatal("it did not panic")
		}
	}()
	f()
	return ""
}

func TestCheckPanicsIfTheConditionIsFalse(t *testing.T) {
	Check(true, "not said")
	if got := says(t, func() {
		Check(false, "%d slots", 3)
	}); got != "invariant violated: 3 slots" {
		t.Error(got)
	}
}

// freshOrder discards the recorded order of locks for the duration of the test.
func freshOrder(t *testing.T) {
	before := held.after
	held.after = map[string]map[string]bool{}
	t.Cleanup(func() { held.after = before })
}

func TestLocksTakenInTheReverseOrderPanic(t *testing.T) {
	freshOrder(t)
	var a Mutex[outer]
	var b Mutex[inner]
	a.Lock()
	b.Lock()
	b.Unlock()
	a.Unlock()
	b.Lock()
	got := says(t, a.Lock)
	b.Unlock()
	if want := "lock of invariants.outer taken while that of invariants.inner is held; elsewhere " +
		"they are taken in the order invariants.outer, invariants.inner"; !strings.Contains(got,
		want) {
		t.Error(got)
	}
	a.Lock() // the lock that panicked is not held
	a.Unlock()
}

func TestCycleOfThreeLocksPanics(t *testing.T) {
	freshOrder(t)
	var a Mutex[outer]
	var b Mutex[inner]
	var c Mutex[third]
	within := func(x, y sync.Locker) {
		x.Lock()
		defer x.Unlock()
		y.Lock()
		y.Unlock()
	}
	within(&a, &b)
	within(&b, &c)
	if got := says(t, func() {
		within(&c, &a)
	}); !strings.Contains(got, "invariants.outer, invariants.inner, invariants.third") {
		t.Error(got)
	}
}

func TestLocksOfOneTypeMustNotNest(t *testing.T) {
	freshOrder(t)
	var a, b Mutex[outer]
	a.Lock()
	defer a.Unlock()
	says(t, b.Lock)
}

func TestLocksOfSeveralGoroutinesDoNotNest(t *testing.T) {
	freshOrder(t)
	var a Mutex[outer]
	var b Mutex[inner]
	a.Lock()
	b.Lock()
	b.Unlock()
	a.Unlock()
	b.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Lock()
		a.Unlock()
	}()
	<-done
	b.Unlock()
}

func TestLockUnlockedByAnotherGoroutineIsNotHeld(t *testing.T) {
	freshOrder(t)
	var a Mutex[outer]
	var b Mutex[inner]
	a.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Unlock()
	}()
	<-done
	b.Lock()
	b.Unlock()
	if len(held.after) > 0 {
		t.Errorf("a lock that was not held was recorded as held: %v", held.after)
	}
}

func TestTryLockTakesAFreeLockInAnyOrder(t *testing.T) {
	freshOrder(t)
	var a Mutex[outer]
	var b Mutex[inner]
	a.Lock()
	b.Lock()
	if b.TryLock() {
		t.Error("TryLock took a held lock")
	}
	b.Unlock()
	a.Unlock()
	b.Lock()
	if !a.TryLock() {
		t.Error("TryLock did not take a free lock")
	}
	a.Unlock()
	b.Unlock()
}

func TestWriteAfterReleasePanics(t *testing.T) {
	memory := make([]byte, 300<<10)
	var p Poison
	end := int64(len(memory)) - 7
	p.Reserve(memory, 0, end) // never used before
	memory[end-1] = 1
	p.Release(memory, 10, end)
	if memory[9] != 0 || memory[10] == 0 || memory[end-1] == 1 || memory[end] != 0 {
		t.Fatal("other memory than the released part was overwritten")
	}
	p.Reserve(memory, 10, 1000)
	memory[10] = 1
	memory[200<<10] = 1
	if got := says(t, func() {
		p.Reserve(memory, 1000, int64(len(memory)))
	}); !strings.Contains(got, "byte 204800 was written after its release: 0x1") {
		t.Error(got)
	}
}
