package memory_test

import (
	"bytes"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGrowsInPlace(t *testing.T) {
	c := memory.New(memory.Options{})
	ds := storageclass.Dataset{Fingerprint: [16]byte{1}, Samples: 4, Size: func(int) int64 { return 100 }}
	s, err := c.Open(ds, 100)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte{7}, 100)
	if err := s.Put(0, data); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(1, data); !errors.Is(err, storageclass.ErrFull) {
		t.Fatalf("got %v, want ErrFull", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := c.Open(ds, 400)
	if err != nil {
		t.Fatal(err)
	}
	for id := range 4 {
		if err := again.Put(id, data); err != nil {
			t.Fatal(err)
		}
	}
	if total, used := again.Room(); total != 400 || used != 400 {
		t.Fatalf("room %d, used %d", total, used)
	}
	if err := c.Close(); err == nil {
		t.Fatal("closed with an open store")
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err == nil {
		t.Fatal("closed twice")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}
