package heap

import (
	"testing"

	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/storageclasstest"
)

func factory(_ testing.TB, capacity int64) storageclass.Class { return New(capacity) }

func TestKeepsTheContractOfClasses(t *testing.T) { storageclasstest.Run(t, factory) }

func BenchmarkClass(b *testing.B) { storageclasstest.Benchmark(b, factory) }
