package memory

import "github.com/hdmlp/hdmlp/internal/storageclass"

// Name is the kind's name.
const Name = "memory"

// Kind describes the class to the configuration; all that ask for one get class, because there is
// one memory.
func Kind(class *Class) storageclass.Kind {
	return storageclass.Kind{
		Name: Name,
		Help: "shared memory of the daemon, where training processes have samples " +
			"without a copy",
		SizeKey: "memory",
		New:     func(storageclass.Options) (storageclass.Class, error) { return class, nil },
	}
}
