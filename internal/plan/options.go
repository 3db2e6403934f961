package plan

import (
	"errors"
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

// WrongOption is the error of an option that a policy does not have, or of its value.
type WrongOption struct{ Policy, Wrong, Allowed string }

func (e *WrongOption) Error() string {
	return "policy " + e.Policy + ": " + e.Wrong + "; allowed: " + e.Allowed
}

// WithOptions returns the policy with the options of a name such as "tfdata:buffer=2000". The error
// is a *WrongOption.
func WithOptions(p Policy, name string) (Policy, error) {
	base, given, some := strings.Cut(name, optionMark)
	if !some {
		return p, nil
	}
	o, ok := p.(Optional)
	if !ok || len(o.Options()) == 0 {
		return nil, &WrongOption{
			base, base + " has no options, and " + human.Name(given) + " is given",
			"the name alone",
		}
	}
	values, options := option.Values{}, o.Options()
	keys := make([]string, len(options))
	for i, of := range options {
		keys[i] = of.Key
	}
	for text := range strings.SplitSeq(given, optionMark) {
		key, value, some := strings.Cut(text, "=")
		of, ok := option.Find(options, key)
		if !ok || !some {
			return nil, &WrongOption{
				base, human.Name(text) + " is none of its options" + human.Nearest(key, keys),
				fmt.Sprintf("%s, each as %s:%s=%s", human.And(keys), base, options[0].Key,
					options[0].Default),
			}
		}
		if _, again := values[key]; again {
			return nil, &WrongOption{base, "its option " + key + " is given twice", "each once"}
		}
		v, _, err := of.Read(value)
		if wrong := (*option.Error)(nil); errors.As(err, &wrong) {
			return nil, &WrongOption{
				base, fmt.Sprintf("%s = %q: %s", key, value, wrong.Wrong), wrong.Allowed,
			}
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
