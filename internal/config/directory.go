package config

// checkDirectory refuses a class's directory that is none and cannot be created. It reports
// whether the directory may be used.
func (r *resolver) checkDirectory(path Problem, dir string) bool {
	check := r.input.Machine.Directory
	if check == nil {
		return true
	}
	if err := check(dir); err != nil {
		path.Wrong, path.Err = err.Error(), err
		r.problem(path)
		return false
	}
	return true
}
