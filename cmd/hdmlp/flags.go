package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
)

// flagTypes describes, for each type of flag, the values that it takes.
var flagTypes = map[string]string{
	"bool":     "true or false",
	"duration": `a duration such as "1s" or "500ms"`,
	"float64":  "a number",
	"int":      "a whole number",
	"uint64":   "a whole number, 0 or more",
}

// flagError returns the error for an unknown flag, or for a value that is not of the flag's type.
// The flag library's own text names functions of Go instead of what is allowed.
func flagError(cmd *cobra.Command, err error) error {
	var invalid interface {
		error
		GetValue() string
	}
	if !errors.As(err, &invalid) {
		return badInput("%w; `%s --help` lists the flags", err, cmd.CommandPath())
	}
	_, name, _ := strings.Cut(invalid.Error(), "--") // invalid argument "x" for "-n, --nodes" flag
	name, _, _ = strings.Cut(name, `"`)
	flag := cmd.Flags().Lookup(name)
	if flag == nil || flagTypes[flag.Value.Type()] == "" {
		return inputError{err}
	}
	return badInput("--%s is %q; allowed: %s", name, invalid.GetValue(),
		flagTypes[flag.Value.Type()])
}
