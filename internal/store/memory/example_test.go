package memory_test

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// A store holds the samples of one dataset, and keeps them for the next job.
func Example() {
	class := memory.New(memory.Options{})
	defer class.Close() //nolint:errcheck // an example
	images := store.Dataset{
		Fingerprint: [16]byte{1}, Samples: 10, Size: func(int) int64 { return 5 },
	}
	opened, err := class.Open(images, 50)
	if err != nil {
		fmt.Println(err)
		return
	}
	sample := []byte("bytes")
	err = opened.Put(7, sample, store.Origin{Digest: digest.Of(sample)})
	fmt.Println(opened.Has(7), opened.Held(), err)
	fmt.Println(opened.Close())

	opened, err = class.Open(images, 50) // a later job
	if err != nil {
		fmt.Println(err)
		return
	}
	got := make([]byte, 5)
	err = opened.Read(7, got)
	fmt.Printf("%s %v\n", got, err)
	fmt.Println(opened.Read(8, got))
	fmt.Println(opened.Close())
	// Output:
	// true [7] <nil>
	// <nil>
	// bytes <nil>
	// the storage class does not hold the sample
	// <nil>
}
