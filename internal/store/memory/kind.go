package memory

import (
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/store"
)

// Name is the name of the kind.
const Name = "memory"

// Kind describes the class to the configuration. All requests get class, since there is one memory.
func Kind(class *Class) store.Kind {
	return store.Kind{
		Name: Name,
		Help: "shared memory of the daemon, from which training processes use samples " +
			"without a copy",
		Options: []store.Option{{
			Option: option.Option{
				Key: store.CapacityKey, Kind: option.Size, Min: 1, Required: true,
				Help: "Bytes that samples may occupy",
				Job:  "memory",
			},
			Example: "64GiB",
		}},
		Memory: true,
		New:    func(store.Options) (store.Class, error) { return class, nil },
	}
}
