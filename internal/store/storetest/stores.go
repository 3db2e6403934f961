package storetest

import (
	"errors"
	"testing"

	"github.com/hdmlp/hdmlp/internal/store"
)

func testSameStoreWhileOpen(t *testing.T, factory Factory) {
	c := factory(t, 1000)
	ds := Uniform(1, 10, 50)
	s := Open(t, c, ds, 100)
	Put(t, s, ds, 7)
	again := Open(t, c, ds, 1000)
	if again != s {
		t.Fatal("another store")
	}
	if total, _ := again.Capacity(); total != 100 {
		t.Fatalf("capacity %d, want 100 still", total)
	}
	if n, err := c.Available(ds); err != nil || n != 100 {
		t.Fatalf("available %d, %v, want what the open store has", n, err)
	}
	Close(t, s)
	Check(t, again, ds, 7)
	Close(t, again, c)
}

func testWarm(t *testing.T, factory Factory) {
	c := factory(t, 1000)
	ds := Uniform(1, 20, 50)
	s := Open(t, c, ds, 150)
	Put(t, s, ds, 5, 3)
	Close(t, s)
	if n, err := c.Available(ds); err != nil || n != 1000 {
		t.Fatalf("available %d, %v, want 1000", n, err)
	}
	s = Open(t, c, ds, 1000)
	Check(t, s, ds, 5, 3)
	for id := range 20 {
		Put(t, s, ds, id)
	}
	if _, used := s.Capacity(); used != 1000 {
		t.Fatalf("%d bytes in use, want 1000", used)
	}
	Close(t, s)
	// With less capacity than it holds: the remaining samples are intact and within the capacity.
	s = Open(t, c, ds, 500)
	held := s.Held()
	if len(held) < 10 || held[0] != 5 {
		t.Fatalf("held %v, want the oldest", held)
	}
	if total, used := s.Capacity(); total != 500 || used > 500 {
		t.Fatalf("%d of %d bytes in use, want at most 500 of 500", used, total)
	}
	ids := []int{}
	for _, id := range held {
		ids = append(ids, int(id))
	}
	Check(t, s, ds, ids...)
	Close(t, s, c)
}

func testEviction(t *testing.T, factory Factory) {
	c := factory(t, 300)
	sets := []store.Dataset{Uniform(1, 10, 10), Uniform(2, 10, 10), Uniform(3, 10, 10)}
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	for _, ds := range sets {
		s := Open(t, c, ds, 100)
		Put(t, s, ds, all...)
		Close(t, s)
	}
	s := Open(t, c, sets[0], 100) // used last now
	Check(t, s, sets[0], all...)
	Close(t, s)
	fourth := Uniform(4, 15, 10)
	if n, err := c.Available(fourth); err != nil || n != 300 {
		t.Fatalf("available %d, %v, want 300", n, err)
	}
	s4 := Open(t, c, fourth, 150) // evicts 2 and 3
	s = Open(t, c, sets[0], 100)
	Check(t, s, sets[0], all...)
	cold := Open(t, c, sets[1], 50)
	Check(t, cold, sets[1])
	Put(t, s4, fourth, all...)
	Close(t, s, s4, cold, c)
}

func testOpenStoresStay(t *testing.T, factory Factory) {
	c := factory(t, 300)
	a, b := Uniform(1, 10, 10), Uniform(2, 10, 10)
	sa := Open(t, c, a, 200) // promised, although it is empty
	if n, err := c.Available(b); err != nil || n != 100 {
		t.Fatalf("available %d, %v, want 100", n, err)
	}
	_, err := c.Open(b, 101)
	var limit *store.LimitError
	if !errors.As(err, &limit) || limit.Need != 101 || limit.Limit != 100 {
		t.Fatalf("got %v, want need 101 and limit 100", err)
	}
	Put(t, sa, a, 1)
	sb := Open(t, c, b, 100)
	Check(t, sa, a, 1)
	Close(t, sa, sb, c)
}
