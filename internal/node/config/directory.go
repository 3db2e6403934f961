package config

import (
	"fmt"
	"os"
	"time"

	"github.com/hdmlp/hdmlp/internal/store"
)

// directory is what a class's directory was found to be.
type directory struct {
	info  os.FileInfo // nil: nothing is there
	wrong error       // why the class cannot use it; nil: it can
	// If nothing is wrong, and Disk is known:
	free    int64 // bytes that a class there could have: what is free, and what it holds already
	reserve int64 // bytes of it that the class leaves free, unless the configuration says how many
	diskErr error
}

// slowAfter is for how long a directory may not answer until Input.Slow is called.
const slowAfter = 2 * time.Second

// look looks at a class's directory. Its disk may hang, so look waits for start_timeout at most; ok
// is false if the directory has not answered by then. System calls that hang end by themselves.
func (r *resolver) look(dir string, kind store.Kind) (found directory, ok bool) {
	answer := make(chan directory, 1)
	machine, slow := r.input.Machine, r.input.Slow
	go func() { answer <- lookAt(&machine, dir, kind) }()
	if slow != nil {
		timer := time.AfterFunc(slowAfter, func() { slow(dir) })
		defer timer.Stop()
	}
	if r.config.StartTimeout <= 0 { // it was not valid
		return <-answer, true
	}
	timeout := time.NewTimer(r.config.StartTimeout)
	defer timeout.Stop()
	select {
	case found = <-answer:
		return found, true
	case <-timeout.C:
		return found, false
	}
}

func lookAt(machine *Machine, dir string, kind store.Kind) (found directory) {
	found.info, _ = os.Stat(dir) // it may not exist yet
	if machine.Directory != nil {
		for _, check := range []func(string) error{machine.Directory, kind.Check} {
			if check == nil {
				continue
			}
			if found.wrong = check(dir); found.wrong != nil {
				return found
			}
		}
	}
	if machine.Disk == nil {
		return found
	}
	var total int64
	if found.free, total, found.diskErr = machine.Disk(dir); found.diskErr != nil {
		return found
	}
	if kind.Reserve != nil {
		found.reserve = kind.Reserve(total)
	}
	if kind.Held != nil {
		// An error means that the directory does not exist yet, or is not a cache; the class itself
		// reports that.
		if held, err := kind.Held(dir); err == nil {
			found.free = addSizes(found.free, held)
		}
	}
	return found
}

// checkDirectory rejects a path at which a class cannot keep anything, and a capacity that its disk
// does not have. It returns what is at the path; nil: nothing, or that is not known.
func (r *resolver) checkDirectory(path, capacity Problem, class StorageClass,
	kind store.Kind,
) os.FileInfo {
	found, ok := r.look(class.Path(), kind)
	switch {
	case !ok:
		path.Wrong = fmt.Sprintf("the directory has not answered for %v (start_timeout)",
			r.config.StartTimeout)
		path.Remedy = "check its file system, or start the job without it"
		r.problem(path)
	case found.wrong != nil:
		path.Wrong, path.Err = found.wrong.Error(), found.wrong
		r.problem(path)
	case r.input.Machine.Disk == nil:
	case found.diskErr != nil:
		capacity.Wrong, capacity.Err = found.diskErr.Error(), found.diskErr
		r.problem(capacity)
	default:
		r.checkDisk(capacity, class, found)
	}
	return found.info
}
