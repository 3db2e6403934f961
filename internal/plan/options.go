package plan

import (
	"fmt"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
)

// Optional is a policy with options.
type Optional interface {
	Policy
	// Options returns the options, each with a default.
	Options() []option.Option
	// With returns the policy with these values of its options.
	With(values option.Values) Policy
}

// optionMark stands before each option of a policy in its name.
const optionMark = ":"

// Base returns the name of a policy without its options.
func Base(name string) string {
	base, _, _ := strings.Cut(name, optionMark)
	return base
}

// WithOptions returns the policy with the options of a name such as "tfdata:buffer=2000". Errors
// name the option, its value and what is allowed.
func WithOptions(p Policy, name string) (Policy, error) {
	base, given, some := strings.Cut(name, optionMark)
	if !some {
		return p, nil
	}
	o, ok := p.(Optional)
	if !ok {
		return nil, fmt.Errorf("policy %s has no options; %s is given", base, human.Name(given))
	}
	values, options := option.Values{}, o.Options()
	keys := make([]string, len(options))
	for i, of := range options {
		keys[i] = of.Key
	}
	for _, text := range strings.Split(given, optionMark) {
		key, value, some := strings.Cut(text, "=")
		of, ok := option.Find(options, key)
		if !ok || !some {
			return nil, fmt.Errorf("policy %s: %s is none of its options; allowed: %s, each as "+
				"%s:%s=%s", base, human.Name(text), human.And(keys), base, options[0].Key,
				options[0].Default)
		}
		if _, again := values[key]; again {
			return nil, fmt.Errorf("policy %s: its option %s is given twice", base, key)
		}
		v, _, err := of.Read(value)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", base, err)
		}
		values[key] = v
	}
	return o.With(values), nil
}

// Named returns the name of a policy with those options whose values, as texts, are not the
// defaults.
func Named(base string, options []option.Option, values ...string) string {
	for i, o := range options {
		if values[i] != o.Default {
			base += optionMark + o.Key + "=" + values[i]
		}
	}
	return base
}
