package heap

import (
	"testing"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/storetest"
)

func factory(_ testing.TB, capacity int64) store.Class { return New(capacity) }

func TestKeepsTheContractOfClasses(t *testing.T) { storetest.Run(t, factory) }

func BenchmarkClass(b *testing.B) { storetest.Benchmark(b, factory) }
