package file

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/crashtest"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
	"github.com/hdmlp/hdmlp/internal/store/storetest"
)

// recorded is a disk that records what changes it. Its space is practically unlimited.
type recorded struct{ crashtest.Disk[disk.File] }

func record(r *crashtest.Recorder) recorded {
	return recorded{crashtest.Disk[disk.File]{Recorder: r}}
}

func (d recorded) Free(dir int) (free, total int64, err error) { return big{}.Free(dir) }

// The datasets of the crashes have samples at the same places, and indices of several sectors.
const (
	crashSamples = 14
	crashSize    = 100 // bytes of a sample
)

var crashSets = []store.Dataset{
	storetest.Uniform(1, crashSamples, crashSize),
	storetest.Uniform(2, crashSamples, crashSize),
}

// process is what one process does with a cache.
type process func(t *testing.T, d disk.Disk, dir string)

// job is a process that opens the stores of datasets, one after the other, with the capacity of so
// many samples each, and drops and puts samples.
func job(samples int64, sets []store.Dataset, drop, put []int) process {
	return func(t *testing.T, d disk.Disk, dir string) {
		t.Helper()
		capacity := samples * crashSize
		c, err := New(Options{Dir: dir, Capacity: capacity, Reserve: 1, Disk: d})
		if err != nil {
			t.Fatal(err)
		}
		for _, ds := range sets {
			s := storetest.Open(t, c, ds, capacity)
			s.Drop(drop...)
			for _, id := range put {
				data := storetest.Bytes(ds, id)
				err := s.Put(id, data, storetest.OriginOf(id, data))
				if err != nil && !errors.Is(err, store.ErrFull) {
					t.Fatal(err)
				}
			}
			storetest.Close(t, s)
		}
		storetest.Close(t, c)
	}
}

// remove is `hdmlp cache rm`.
func remove(t *testing.T, d disk.Disk, dir string) {
	t.Helper()
	c, err := existing(d, dir)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Lock()
	for _, ds := range crashSets {
		_, one := c.Remove(ds.Fingerprint)
		err = errors.Join(err, one)
	}
	if err := errors.Join(err, c.RemoveMarker(), c.Close()); err != nil {
		t.Fatal(err)
	}
}

// repair is `hdmlp cache check --drop`.
func repair(t *testing.T, d disk.Disk, dir string) {
	t.Helper()
	c, err := existing(d, dir)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(c.Lock(), c.Drop(crashSets[0], []int32{0, 5}), c.Close())
	if err != nil {
		t.Fatal(err)
	}
}

// crashForm returns the form of a sample.
func crashForm(ds store.Dataset, id int) []byte {
	return append([]byte("the form, of 30 bytes more: ...."), storetest.Bytes(ds, id)...)
}

// recode is a process that puts forms of samples of the first dataset in their place, and then some
// samples in the place of forms.
func recode(formed, restored []int) process {
	return func(t *testing.T, d disk.Disk, dir string) {
		t.Helper()
		c, err := New(Options{Dir: dir, Capacity: 20 * crashSize, Reserve: 1, Disk: d})
		if err != nil {
			t.Fatal(err)
		}
		ds := crashSets[0]
		s := storetest.Open(t, c, ds, crashSamples*crashSize)
		for _, id := range formed {
			err = errors.Join(err, s.(store.FormReader).Replace(id, 3, crashForm(ds, id)))
		}
		for _, id := range restored {
			err = errors.Join(err, s.(store.FormReader).Replace(id, 0, storetest.Bytes(ds, id)))
		}
		if err != nil {
			t.Fatal(err)
		}
		storetest.Close(t, s, c)
	}
}

var (
	first = crashSets[:1]
	all   = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
)

// TestCrashes simulates power failures at every point of what processes do with a cache.
func TestCrashes(t *testing.T) {
	for name, processes := range map[string][]process{
		"fill":            {job(20, first, nil, []int{0, 1, 2})},
		"drop and reuse":  {job(3, first, nil, []int{0, 1, 2}), job(3, first, []int{1}, []int{3})},
		"less capacity":   {job(20, first, nil, all[:4]), job(2, first, nil, nil)},
		"another dataset": {job(14, crashSets, nil, all)},
		"remove":          {job(20, first, nil, []int{0, 1}), remove, job(20, first, nil, []int{2})},
		"repair":          {job(20, first, nil, all[:6]), repair},
		"forms": {
			job(14, first, nil, all[:6]), recode(all[:4], all[1:2]), job(14, first, all[:1], all[6:7]),
			recode(all[4:6], all[2:4]),
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r, err := crashtest.New(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, process := range processes {
				process(t, record(r), dir)
			}
			sets := first // checking a dataset that no process uses would take time
			if name == "another dataset" {
				sets = crashSets
			}
			states, err := r.Explore(15, 1, func(path string) error { return usable(path, sets) })
			if err != nil {
				t.Error(err)
			}
			t.Logf("%d states", states)
		})
	}
}

// TestCrashesInARow begins with what a crash has left, lets a random process follow, and crashes
// again.
func TestCrashesInARow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	for range 3 {
		r, err := crashtest.New(dir)
		if err != nil {
			t.Fatal(err)
		}
		drop := random.Perm(crashSamples)[:random.IntN(4)]
		put := random.Perm(crashSamples)[:random.IntN(crashSamples)]
		job(1+random.Int64N(crashSamples), crashSets, drop, put)(t, record(r), dir)
		dir = t.TempDir()
		tried := 0
		states, err := r.Explore(3, random.Uint64(), func(path string) error {
			if tried++; random.IntN(tried) == 0 { // each is as likely as any other to be the next
				if err := os.RemoveAll(dir); err != nil {
					return err
				}
				if err := os.CopyFS(dir, os.DirFS(path)); err != nil {
					return err
				}
				if err := os.Chmod(dir, 0o700); err != nil {
					return err
				}
			}
			return usable(path, crashSets)
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d states", states)
	}
}

// usable returns an error unless the cache at path can be listed, opens, holds nothing but right
// samples of the datasets, and can be filled and opened again.
func usable(path string, sets []store.Dataset) error {
	if c, err := Existing(path); err == nil {
		_, err := c.Stores()
		if err := errors.Join(err, c.Close()); err != nil {
			return fmt.Errorf("list the stores: %w", err)
		}
	} else if !errors.Is(err, ErrNoCache) {
		return err
	}
	for _, complete := range []bool{false, true} {
		c, err := New(Options{Dir: path, Capacity: 1 << 20, Reserve: 1, Disk: big{}})
		if err != nil {
			return err
		}
		for _, ds := range sets {
			if err := fill(c, ds, complete); err != nil {
				return fmt.Errorf("dataset %x: %w", ds.Fingerprint[:1], err)
			}
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}

// fill checks the samples that a store holds, and puts the others. complete: there must be none.
func fill(c *Class, ds store.Dataset, complete bool) error {
	s, err := c.Open(ds, crashSamples*crashSize)
	if err != nil {
		return err
	}
	buffer := make([]byte, crashSize)
	for id := range ds.Samples {
		want := storetest.Bytes(ds, id)
		origin, held := s.Origin(id)
		err := s.Read(id, buffer)
		if errors.Is(err, store.ErrForm) {
			info, _ := s.(store.FormReader).FormInfo(id)
			buffer := make([]byte, info.Bytes)
			err = s.(store.FormReader).ReadForm(id, info, buffer)
			if err == nil && (info.Kind != 3 || !bytes.Equal(buffer, crashForm(ds, id))) {
				return fmt.Errorf("sample %d is in another form", id)
			}
		} else if err == nil && !bytes.Equal(buffer, want) {
			return fmt.Errorf("sample %d has other bytes", id)
		}
		switch {
		case err == nil && origin != storetest.OriginOf(id, want):
			return fmt.Errorf("sample %d has the origin %+v", id, origin)
		case err == nil:
			continue
		case complete || held != errors.Is(err, store.ErrCorrupt) ||
			held == errors.Is(err, store.ErrNotHeld):
			return fmt.Errorf("sample %d, held: %v: %w", id, held, err)
		}
		if err := s.Put(id, want, storetest.OriginOf(id, want)); err != nil {
			return err
		}
	}
	return s.Close()
}
