package main

import (
	"strings"
	"testing"
)

func TestFlagErrorsSayWhatIsAllowed(t *testing.T) {
	for args, want := range map[string]string{
		"access --samples x":                   "--samples is \"x\"; allowed: a whole number\n",
		"access --seed -1":                     "--seed is \"-1\"; allowed: a whole number, 0 or",
		"access --delta much":                  "--delta is \"much\"; allowed: a number\n",
		"access --drop-last=maybe":             "--drop-last is \"maybe\"; allowed: true or false\n",
		"top --interval soon":                  "--interval is \"soon\"; allowed: a duration such as",
		"dev cluster -n two":                   "--nodes is \"two\"; allowed: a whole number\n",
		"access --samples 9999999999999999999": "--samples is \"9999999999999999999\"; allowed: ",
		"stop --forc":                          "--forc; `hdmlp stop --help` lists the flags\n",
	} {
		if code, out, errs := status(t, strings.Fields(args)...); code != 2 || out != "" ||
			!strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %q, %q; want %q", args, code, out, errs, want)
		}
	}
}
