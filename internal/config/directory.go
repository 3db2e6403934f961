package config

import "github.com/hdmlp/hdmlp/internal/storageclass"

// checkDirectory refuses a class's directory that is none and cannot be created, or that contains
// what is not the class's. It reports whether the directory may be used.
func (r *resolver) checkDirectory(path Problem, dir string, kind storageclass.Kind) bool {
	if r.input.Machine.Directory == nil {
		return true
	}
	for _, check := range []func(string) error{r.input.Machine.Directory, kind.Check} {
		if check == nil {
			continue
		}
		if err := check(dir); err != nil {
			path.Wrong, path.Err = err.Error(), err
			r.problem(path)
			return false
		}
	}
	return true
}
