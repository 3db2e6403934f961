package memory

import "github.com/hdmlp/hdmlp/internal/store"

// Name is the name of the kind.
const Name = "memory"

// Kind describes the class to the configuration. All requests get class, since there is one memory.
func Kind(class *Class) store.Kind {
	return store.Kind{
		Name: Name,
		Help: "shared memory of the daemon, from which training processes use samples " +
			"without a copy",
		SizeKey: "memory",
		New:     func(store.Options) (store.Class, error) { return class, nil },
	}
}
