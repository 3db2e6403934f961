package memory

import "github.com/hdmlp/hdmlp/internal/storageclass"

// Name is the name of the kind.
const Name = "memory"

// Kind describes the class to the configuration. All requests get class, since there is one memory.
func Kind(class *Class) storageclass.Kind {
	return storageclass.Kind{
		Name: Name,
		Help: "shared memory of the daemon, from which training processes use samples " +
			"without a copy",
		SizeKey: "memory",
		New:     func(storageclass.Options) (storageclass.Class, error) { return class, nil },
	}
}
