package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/memory"
	"github.com/hdmlp/hdmlp/internal/storageclass/storageclasstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// factory makes a class on a machine with capacity bytes of memory.
func factory(_ testing.TB, capacity int64) storageclass.Class {
	var c *memory.Class
	c = memory.New(memory.Options{Limit: func() (int64, error) { return capacity - c.Taken(), nil }})
	return c
}

func TestClass(t *testing.T) { storageclasstest.Run(t, factory) }

func BenchmarkClass(b *testing.B) { storageclasstest.Benchmark(b, factory) }
