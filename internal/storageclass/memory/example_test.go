package memory_test

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/digest"
	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/memory"
)

// A store holds the samples of one dataset, and keeps them for the next job.
func Example() {
	class := memory.New(memory.Options{})
	defer class.Close() //nolint:errcheck // an example
	images := storageclass.Dataset{
		Fingerprint: [16]byte{1}, Samples: 10, Size: func(int) int64 { return 5 },
	}
	store, err := class.Open(images, 50)
	if err != nil {
		fmt.Println(err)
		return
	}
	sample := []byte("bytes")
	err = store.Put(7, sample, storageclass.Origin{Digest: digest.Of(sample)})
	fmt.Println(store.Has(7), store.Held(), err)
	fmt.Println(store.Close())

	store, err = class.Open(images, 50) // a later job
	if err != nil {
		fmt.Println(err)
		return
	}
	got := make([]byte, 5)
	err = store.Read(7, got)
	fmt.Printf("%s %v\n", got, err)
	fmt.Println(store.Read(8, got))
	fmt.Println(store.Close())
	// Output:
	// true [7] <nil>
	// <nil>
	// bytes <nil>
	// the storage class does not hold the sample
	// <nil>
}
