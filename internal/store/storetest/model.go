package storetest

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/store"
)

// testModel compares random calls on a class with three datasets with a model of what every store
// holds.
func testModel(t *testing.T, factory Factory) {
	sizes := []int64{0, 1, 7, 64, 100, 100, 250, 500}
	rapid.Check(t, func(r *rapid.T) {
		c := factory(t, 1500)
		stores := []*modelStore{
			{ds: Dataset(1, sizes...)}, {ds: Dataset(2, sizes...)}, {ds: Dataset(3, sizes...)},
		}
		pick := func(r *rapid.T) *modelStore { return rapid.SampledFrom(stores).Draw(r, "store") }
		pickOpen := func(r *rapid.T) *modelStore {
			if m := pick(r); m.store != nil {
				return m
			}
			r.Skip("it is not open")
			return nil
		}
		pickID := func(r *rapid.T) int { return rapid.IntRange(0, len(sizes)-1).Draw(r, "id") }
		r.Repeat(map[string]func(*rapid.T){
			"open": func(r *rapid.T) {
				m := pick(r)
				if m.store != nil {
					r.Skip("it is open")
				}
				m.open(r, c, rapid.Int64Range(0, 1000).Draw(r, "capacity"))
			},
			"close": func(r *rapid.T) {
				m := pickOpen(r)
				Close(r2t(t, r), m.store)
				m.store = nil
			},
			"put": func(r *rapid.T) { m := pickOpen(r); m.put(r, pickID(r)) },
			"drop": func(r *rapid.T) {
				m := pickOpen(r)
				m.drop(rapid.SliceOfN(rapid.Custom(pickID), 0, 5).Draw(r, "dropped"))
			},
			"fill": func(r *rapid.T) {
				m := pickOpen(r)
				m.fill(r, pickID(r), rapid.Bool().Draw(r, "fails"))
			},
			"": func(r *rapid.T) {
				for _, m := range stores {
					if m.store != nil {
						Check(r2t(t, r), m.store, m.ds, m.held...)
					}
				}
			},
		})
		for _, m := range stores {
			if m.store != nil {
				Close(r2t(t, r), m.store)
			}
		}
		Close(r2t(t, r), c)
	})
}

// rapidT lets helpers that take a testing.TB fail the rapid check, so that it shrinks.
type rapidT struct {
	testing.TB
	r *rapid.T
}

func r2t(t *testing.T, r *rapid.T) testing.TB { return rapidT{t, r} }

func (t rapidT) Helper()                      { t.r.Helper() }
func (t rapidT) Fatalf(f string, args ...any) { t.r.Fatalf(f, args...) }

// modelStore is a store and what it should hold.
type modelStore struct {
	ds       store.Dataset
	store    store.Store
	held     []int
	capacity int64
}

func (m *modelStore) used() int64 {
	var sum int64
	for _, id := range m.held {
		sum += m.ds.Size(id)
	}
	return sum
}

// open opens the store. The store may have been evicted as a whole or, if it held more than its
// capacity is now, have lost its newest samples, but nothing else.
func (m *modelStore) open(r *rapid.T, c store.Class, capacity int64) {
	available, err := c.Available(m.ds)
	if err != nil {
		r.Fatalf("available: %v", err)
	}
	s, err := c.Open(m.ds, capacity)
	var limit *store.LimitError
	if errors.As(err, &limit) {
		if capacity <= available {
			r.Fatalf("%d bytes are available, %d refused: %v", available, capacity, err)
		}
		return
	}
	if err != nil {
		r.Fatalf("open: %v", err)
	}
	var held []int
	for _, id := range s.Held() {
		held = append(held, int(id))
	}
	total, _ := s.Capacity()
	switch {
	case len(held) > len(m.held) || !slices.Equal(held, m.held[:len(held)]):
		r.Fatalf("opened with %v, held %v before", held, m.held)
	case len(held) != 0 && len(held) < len(m.held) && m.used() <= capacity:
		r.Fatalf("lost a part of %v, has %v", m.held, held)
	case total < capacity:
		r.Fatalf("capacity %d, asked for %d", total, capacity)
	}
	m.store = s
	m.held = held
	m.capacity = total
}

func (m *modelStore) put(r *rapid.T, id int) {
	m.kept(r, id, put(m.store, id, Bytes(m.ds, id)))
}

// drop drops samples. A store that frees their bytes by segment gives segments back, until all of
// these bytes are free.
func (m *modelStore) drop(ids []int) {
	m.store.Drop(ids...)
	m.lose(ids)
	p, ok := m.store.(store.Shrinker)
	if !ok {
		return
	}
	for _, e := range p.Segments() {
		if _, used := m.store.Capacity(); used == m.used() {
			return
		}
		if p.GiveBack(e.Number, "a test") {
			for _, id := range e.Held {
				m.lose([]int{int(id)})
			}
		}
	}
}

// lose removes samples from those that the store should hold.
func (m *modelStore) lose(ids []int) {
	m.held = slices.DeleteFunc(m.held, func(id int) bool { return slices.Contains(ids, id) })
}

func (m *modelStore) fill(r *rapid.T, id int, fails bool) {
	s, ok := m.store.(store.InPlace)
	if !ok || m.store.Has(id) {
		r.Skip("nothing to fill")
	}
	failure := errors.New("it fails")
	err := s.Fill(id, func(dst []byte) (store.Origin, error) {
		copy(dst, Bytes(m.ds, id))
		if fails {
			return store.Origin{}, failure
		}
		return OriginOf(id, dst), nil
	})
	if fails && errors.Is(err, failure) {
		return
	}
	m.kept(r, id, err)
}

// kept checks the result of a Put or Fill and updates the model.
func (m *modelStore) kept(r *rapid.T, id int, err error) {
	switch {
	case slices.Contains(m.held, id):
		if err != nil {
			r.Fatalf("put a sample that is held: %v", err)
		}
	case m.used()+m.ds.Size(id) > m.capacity:
		if !errors.Is(err, store.ErrFull) {
			r.Fatalf("no room for sample %d: got %v", id, err)
		}
	case err != nil:
		r.Fatalf("there is room for sample %d: got %v", id, err)
	default:
		m.held = append(m.held, id)
	}
}
